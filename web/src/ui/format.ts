// Numbers, sizes and days as the page writes them.

const WHOLE = new Intl.NumberFormat("en");

export function count(value: number): string {
  return WHOLE.format(Math.round(value));
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Three figures: 0.31, 4.20, 42.1, 512. */
export function rounded(value: number): string {
  if (!Number.isFinite(value)) return "0";
  const size = Math.abs(value);
  if (size >= 100) return count(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit] ?? ""}`;
}

/** Milliseconds as the shortest that tells: 340 ms, 1.2 s, 2 min 5 s. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en", { weekday: "long" });
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function clock(at: number): string {
  return CLOCK.format(at);
}

export function fullTime(at: number): string {
  return FULL.format(at);
}

/** The heading under which the sidebar lists what was last used then. */
export function dayGroup(at: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (at >= midnight) return "Today";
  const day = 86_400_000;
  if (at >= midnight - day) return "Yesterday";
  if (at >= midnight - 6 * day) return DAY.format(at);
  return MONTH.format(at);
}
