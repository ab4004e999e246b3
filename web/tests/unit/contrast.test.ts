// The colours of tokens.css in both themes: text at 4.5 to 1 at least, edges of controls and what has a meaning at 3 to 1.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

type Colour = readonly [number, number, number];

const sheet = readFileSync(join(import.meta.dirname, "../../src/styles/tokens.css"), "utf8");

function parse(hex: string): Colour {
  const value = Number.parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** A variable's colour: written out for both themes, or mixed of two others. */
function colour(name: string, dark: boolean): Colour {
  const value = new RegExp(`--${name}: ([^;]+);`).exec(sheet)?.[1] ?? "";
  const pair = /^light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)$/.exec(value);
  if (pair) return parse((dark ? pair[2] : pair[1]) ?? "");
  const [, of = "", share = "", over = ""] = /^color-mix\(in srgb, var\(--([a-z-]+)\) (\d+)%, var\(--([a-z-]+)\)\)$/.exec(value) ?? [];
  assert.notEqual(of, "", `--${name} is not a colour that this test reads: ${value}`);
  return mix(colour(of, dark), colour(over, dark), Number(share) / 100);
}

function mix(one: Colour, other: Colour, share: number): Colour {
  return [0, 1, 2].map((at) => (one[at] ?? 0) * share + (other[at] ?? 0) * (1 - share)) as unknown as Colour;
}

function luminance(of: Colour): number {
  const [red = 0, green = 0, blue = 0] = of.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: Colour, other: Colour): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

const grounds = ["paper", "surface", "grey", "sunken"];
const texts: readonly (readonly [string, readonly string[]])[] = [
  ["ink", [...grounds, "accent-soft", "warn-soft", "bad-soft"]], ["quiet", grounds], ["accent", grounds], ["on-accent", ["accent"]],
  ["bad", ["surface", "paper", "bad-soft"]], ["code-word", ["surface"]], ["code-text", ["surface"]], ["code-number", ["surface"]], ["code-name", ["surface"]], ["code-note", ["surface"]],
];
const edges: readonly (readonly [string, readonly string[]])[] = [
  ["edge", grounds], ["accent", [...grounds, "accent-soft"]], ["good", grounds], ["warn", [...grounds, "warn-soft"]], ["bad", [...grounds, "bad-soft"]],
];

for (const [what, pairs, least] of [["texts", texts, 4.5], ["edges of controls and signs", edges, 3]] as const) {
  test(`${what} are seen: ${least} to 1 in both themes`, () => {
    const weak: string[] = [];
    for (const dark of [false, true]) {
      for (const [front, backs] of pairs) {
        for (const back of backs) {
          const ratio = contrast(colour(front, dark), colour(back, dark));
          if (ratio < least) weak.push(`${front} on ${back}, ${dark ? "dark" : "light"}: ${ratio.toFixed(2)}`);
        }
      }
    }
    assert.deepEqual(weak, []);
  });
}
