export async function checkBatches() {}
