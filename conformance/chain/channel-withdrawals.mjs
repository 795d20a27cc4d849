export async function checkWithdrawals() { return async () => {}; }
