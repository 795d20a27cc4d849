export async function checkRefunds() {}
