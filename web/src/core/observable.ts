// Values that tell of their changes, and plain events. A listener that throws does not keep the others from hearing.
import type { Events, Readable } from "./types.ts";

export class Emitter<T> implements Events<T> {
  private readonly listeners = new Set<(event: T) => void>();

  on(listener: (event: T) => void): () => void {
    const own = (event: T): void => listener(event); // the same listener may be there twice
    this.listeners.add(own);
    return () => void this.listeners.delete(own);
  }

  emit(event: T): void {
    for (const listener of [...this.listeners]) {
      try {
        listener(event);
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    }
  }
}

export class Cell<T> implements Readable<T> {
  private value: T;
  private readonly emitter = new Emitter<T>();

  constructor(value: T) {
    this.value = value;
  }

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    this.emitter.emit(value);
  }

  subscribe(listener: (value: T) => void): () => void {
    return this.emitter.on(listener);
  }
}
