// Packs what Vite has built (build/page) into web/dist, which the program embeds: every file compressed, and never more
// than 120 kB together. With --check it compares instead: what is committed has to be what the sources make.
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";

const mostBytes = 120_000;
const built = join(import.meta.dirname, "../../build/page");
const packed = join(import.meta.dirname, "../dist");

function compress(path: string): Buffer {
  const bytes = gzipSync(readFileSync(path), { level: 9 });
  bytes[9] = 255; // which system it was compressed on is nobody's business
  return bytes;
}

function filesUnder(folder: string): string[] {
  return globSync("**/*", { cwd: folder, withFileTypes: true }).filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1)).sort();
}

function differences(files: ReadonlyMap<string, Buffer>): string[] {
  const there = existsSync(packed) ? filesUnder(packed) : [];
  const gone = there.filter((name) => !files.has(name)).map((name) => `${name} is there and should not be`);
  const changed = [...files].filter(([name, bytes]) => !there.includes(name) || !readFileSync(join(packed, name)).equals(bytes));
  return [...gone, ...changed.map(([name]) => `${name} is missing or another`)];
}

const files = new Map(filesUnder(built).map((name) => [`${name}.gz`, compress(join(built, name))]));
const total = [...files.values()].reduce((sum, bytes) => sum + bytes.length, 0);
if (total > mostBytes) throw new Error(`the page has ${total} bytes compressed, and may have ${mostBytes}`);

if (process.argv.includes("--check")) {
  const found = differences(files);
  if (found.length > 0) throw new Error(`web/dist is not what the sources make; run make page. ${found.join("; ")}`);
} else {
  rmSync(packed, { recursive: true, force: true });
  for (const [name, bytes] of files) {
    mkdirSync(dirname(join(packed, name)), { recursive: true });
    writeFileSync(join(packed, name), bytes);
  }
  process.stdout.write(`web/dist: ${files.size} files, ${total} bytes\n`);
}
