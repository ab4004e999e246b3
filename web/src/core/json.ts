// Reading what others sent: nothing about its shape is believed.

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** undefined: it is no object, or has no such field. */
export function field(value: unknown, name: string): unknown {
  return isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

export function textOr<T>(value: unknown, otherwise: T): string | T {
  return typeof value === "string" ? value : otherwise;
}

export function numberOr<T>(value: unknown, otherwise: T): number | T {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}

/** The last moment that a Date can have; beyond it, formatting throws. */
const lastTime = 8.64e15;

/** Milliseconds since 1970, of a moment that can be shown. */
export function timeOr<T>(value: unknown, otherwise: T): number | T {
  const time = numberOr(value, null);
  return time === null ? otherwise : Math.min(Math.max(time, 0), lastTime);
}

export function listOr(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** undefined: it is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
