// What settlement costs: the measured gas in USD, and examples by the number of agents, their calls, and the age for claims.
const gasPrice = 0.006; // gwei, on Base
const ether = 3000; // USD
const fee = 0.001; // USD for a transaction by the facilitator (CDP, after the first 1000 of a month)
const proxy = 10_000; // gas that the real USDC uses more than our token where it moves; the fee for the data on L1 is not included
const usd = (gas) => (gas * gasPrice * ether) / 1e9;

const moves = (kind) => !kind.startsWith("claim") && kind !== "initiateWithdraw";
// typical is the median: the first payout to a payee, for one, uses more gas than later ones.
function typical(gas, kind) {
  const sorted = gas.get(kind).map((each) => each.gas).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] + (moves(kind) ? proxy : 0);
}

export function printCosts(gas) {
  const row = (...cells) => console.log(`    ${cells[0].padEnd(18)} ${cells.slice(1).map((cell) => String(cell).padStart(15)).join("")}`);
  console.log(`    gas, and USD for the median with the real USDC (+ ${proxy} gas where it moves);`);
  console.log(`    gas at ${gasPrice} gwei, ether at ${ether} USD, a fee of ${fee} USD for each transaction:`);
  row("transaction", "measured", "gas", "calldata bytes", "USD");
  for (const [kind, all] of [...gas].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
    const [used, bytes] = [all.map((each) => each.gas), Math.max(...all.map((each) => each.bytes))];
    const range = Math.min(...used) === Math.max(...used) ? used[0] : `${Math.min(...used)}-${Math.max(...used)}`;
    row(kind, all.length, range, bytes, (usd(typical(gas, kind)) + fee).toFixed(5));
  }
  example(gas);
}

const [days, deposit] = [30, 1];
const prices = [...Array(16).fill(0.005), ...Array(16).fill(0.001), ...Array(8).fill(0.002)]; // messages, reads, changes
const mean = prices.reduce((sum, price) => sum + price, 0) / prices.length;
const [hour, day] = [3600, 86400];

function example(gas) {
  const cost = (kind) => usd(typical(gas, kind)) + fee;
  // A claim costs a fixed part and a part for each channel.
  const perChannel = (cost("claim 25") - cost("claim 1")) / 24;
  const claim = (channels) => cost("claim 1") + (channels - 1) * perChannel;
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 2 : 0)} %`;
  const [table, ages] = [(cells) => console.log(`    ${cells.map((cell) => String(cell).padStart(12)).join("")}`), [6, 12, 24, 48]];

  console.log(`    settlement as a share of revenue, by the age for claims; ${mean.toFixed(4)} USD a call, deposits of ${deposit} USD:`);
  table(["agents", "calls a day", "USD a day", "exact", ...ages.map((age) => `${age} h`)]);
  for (const [agents, calls] of [[1, 40], [5, 40], [25, 10], [25, 40], [25, 200], [100, 40]]) {
    const revenue = agents * calls * mean;
    const shares = ages.map((age) => {
      const { deposits, batches, payouts } = simulate(agents, calls, age);
      const sum = deposits * cost("deposit") + batches.reduce((all, channels) => all + claim(channels), 0) + payouts * cost("settle");
      return percent(sum / days / revenue);
    });
    table([agents, calls, revenue.toFixed(2), percent(cost("exact") / mean), ...shares]);
  }

  console.log("    a call of one channel that is claimed once, in USD: alone, and among 25:");
  table(["calls", "exact", "alone", "among 25"]);
  for (const calls of [1, 2, 3, 5, 10, 30, 100, 300]) {
    const alone = (cost("deposit") + claim(1) + cost("settle")) / calls;
    const among = (cost("deposit") + (claim(25) + cost("settle")) / 25) / calls;
    table([calls, ...[cost("exact"), alone, among].map((sum) => sum.toFixed(6))]);
  }
}

// simulate spreads the calls evenly over the day, with another beginning for each agent, and claims as the server does: a channel is due
// when its oldest voucher has the age (hours) or its sum is 1 USD. If one is due, those with half of the age come along. Every claim is
// paid out.
function simulate(agents, calls, age) {
  const channels = Array.from({ length: agents }, (_, i) => ({ begins: (i * day) / calls / agents, next: 0, balance: 0, sum: 0, since: Infinity }));
  const result = { deposits: 0, batches: [], payouts: 0 };
  for (let now = 0; now < days * day; now += 60) {
    for (const channel of channels) {
      while (now >= channel.begins + (channel.next * day) / calls) {
        const price = prices[(channel.next++ * 7) % prices.length];
        if (channel.balance < price) {
          channel.balance += deposit;
          result.deposits++;
        }
        channel.balance -= price;
        channel.sum += price;
        channel.since = Math.min(channel.since, now);
      }
    }
    const old = (channel, share) => now - channel.since >= age * hour * share;
    if (!channels.some((channel) => old(channel, 1) || channel.sum >= 1)) continue;
    const due = channels.filter((channel) => channel.sum >= 1 || old(channel, 0.5));
    for (let rest = due.length; rest > 0; rest -= 25) result.batches.push(Math.min(rest, 25));
    due.forEach((channel) => Object.assign(channel, { sum: 0, since: Infinity }));
    result.payouts++;
  }
  return result;
}
