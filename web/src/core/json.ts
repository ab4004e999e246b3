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
