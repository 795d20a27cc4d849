// What settlement costs: the measured gas in USD, and an example of 25 agents under several policies of claiming.
const gasPrice = 0.006; // gwei, on Base
const ether = 3000; // USD
const fee = 0.001; // USD for a transaction by the facilitator (CDP, after the first 1000 of a month)
const proxy = 10_000; // gas that the real USDC uses more than our token where it moves
const usd = (gas) => (gas * gasPrice * ether) / 1e9;

const moves = (kind) => !kind.startsWith("claim") && kind !== "initiateWithdraw";
const most = (gas, kind) => Math.max(...gas.get(kind).map((each) => each.gas)) + (moves(kind) ? proxy : 0);

export function printCosts(gas) {
  const row = (...cells) => console.log(`    ${cells[0].padEnd(18)} ${cells.slice(1).map((cell) => String(cell).padStart(15)).join("")}`);
  console.log(`    gas, and USD with the real USDC (+ ${proxy} gas), gas at ${gasPrice} gwei, ether at ${ether} USD and a fee of ${fee} USD:`);
  row("transaction", "measured", "gas", "calldata bytes", "USD");
  for (const [kind, all] of [...gas].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
    const [used, bytes] = [all.map((each) => each.gas), Math.max(...all.map((each) => each.bytes))];
    const range = Math.min(...used) === Math.max(...used) ? used[0] : `${Math.min(...used)}-${Math.max(...used)}`;
    row(kind, all.length, range, bytes, (usd(most(gas, kind)) + fee).toFixed(5));
  }
  example(gas);
}

const [agents, calls, days, deposit] = [25, 40, 30, 1];
const prices = [...Array(16).fill(0.005), ...Array(16).fill(0.001), ...Array(8).fill(0.002)]; // of the 40 calls of a day
const hour = 3600;

function example(gas) {
  // A claim costs a fixed part and a part for each row.
  const perRow = (most(gas, "claim 25") - most(gas, "claim 1")) / 24;
  const claim = (rows) => most(gas, "claim 1") + (rows - 1) * perRow;
  const revenue = agents * prices.reduce((sum, price) => sum + price, 0);
  const single = agents * calls * (usd(most(gas, "exact")) + fee);
  console.log(`    example: ${agents} agents, ${calls} calls each a day, ${revenue.toFixed(2)} USD revenue a day; deposits of ${deposit} USD`);
  console.log(`    exact: ${single.toFixed(2)} USD a day, ${((100 * single) / revenue).toFixed(0)} % of revenue`);
  const policies = [
    ["each channel by its own age of 6 h", { age: 6, join: 1 }],
    ["with all that are half as old", { age: 6, join: 0.5 }],
    ["with all channels", { age: 6, join: 0 }],
    ["age 12 h, with all that are half as old", { age: 12, join: 0.5 }],
    ["age 24 h, each by its own", { age: 24, join: 1 }],
    ["age 24 h, with all that are half as old", { age: 24, join: 0.5 }],
    ["age 24 h, payout once a day", { age: 24, join: 0.5, payoutEvery: 24 }],
  ];
  for (const [name, policy] of policies) {
    const { deposits, batches, rows, payouts } = simulate(policy);
    const cost =
      deposits * (usd(most(gas, "deposit")) + fee) +
      batches.reduce((sum, size) => sum + usd(claim(size)) + fee, 0) +
      payouts * (usd(most(gas, "settle")) + fee);
    const daily = [deposits, batches.length, rows, payouts].map((n) => (n / days).toFixed(1));
    console.log(
      `    ${name.padEnd(42)} ${daily[0]} deposits, ${daily[1]} claims of ${daily[2]} channels, ${daily[3]} payouts a day: ` +
        `${(cost / days).toFixed(3)} USD, ${((100 * cost) / days / revenue).toFixed(2)} % of revenue`,
    );
  }
}

// simulate spreads the calls evenly over the day, with another beginning for each agent. A channel is claimed when its oldest voucher has
// the age (hours) or its sum reaches 1 USD; those whose oldest voucher has at least `join` of the age come along.
function simulate({ age, join, payoutEvery = 0 }) {
  const channels = Array.from({ length: agents }, (_, i) => ({ begins: (i * 86400) / calls / agents, next: 0, balance: 0, sum: 0, since: Infinity }));
  const result = { deposits: 0, batches: [], rows: 0, payouts: 0 };
  let unpaid = 0;
  let paidOut = 0;
  for (let now = 0; now < days * 86400; now += 5) {
    for (const channel of channels) {
      if (now < channel.begins + (channel.next * 86400) / calls) continue;
      const price = prices[(channel.next++ * 7) % calls];
      if (channel.balance < price) {
        channel.balance += deposit;
        result.deposits++;
      }
      channel.balance -= price;
      channel.sum += price;
      channel.since = Math.min(channel.since, now);
    }
    const old = (share) => (channel) => now - channel.since >= age * hour * share;
    if (channels.some((channel) => old(1)(channel) || channel.sum >= 1)) {
      const due = channels.filter((channel) => channel.sum >= 1 || old(join)(channel));
      result.batches.push(due.length);
      result.rows += due.length;
      due.forEach((channel) => Object.assign(channel, { sum: 0, since: Infinity }));
      unpaid += due.length;
    }
    if (unpaid && now - paidOut >= payoutEvery * hour) {
      result.payouts++;
      [unpaid, paidOut] = [0, now];
    }
  }
  return result;
}
