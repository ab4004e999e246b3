// Makes all of core/ and ties it together; main.ts calls it once.
import type { Core } from "./types.ts";

export function createCore(): Promise<Core> {
  return Promise.reject(new Error("not there yet"));
}
