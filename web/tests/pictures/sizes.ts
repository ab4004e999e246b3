// Where the pictures lie, and how wide they are.
import { join } from "node:path";

export const folder = join(import.meta.dirname, "../../../build/page-pictures");
export const widths = [[320, 640], [768, 960], [1440, 900]] as const;
