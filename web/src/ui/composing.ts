// Input methods: while a candidate is chosen, Enter and Escape belong to it.

export function composing(event: KeyboardEvent): boolean {
  // Safari ends the composition before the Enter that confirms it; only the old code tells that key apart.
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  return event.isComposing || event.keyCode === 229;
}
