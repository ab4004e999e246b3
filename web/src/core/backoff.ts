// How long to wait before the next attempt: twice as long each time, up to half a minute, a fifth more or less so that a
// thousand pages do not come back in the same instant.

const first = 500;
const longest = 30_000;

export function waitBefore(attempt: number, random: () => number = Math.random): number {
  const base = Math.min(longest, first * 2 ** Math.min(attempt, 16));
  return Math.round(base * (0.8 + 0.4 * random()));
}
