export async function surviveTogether() { return "0"; }
