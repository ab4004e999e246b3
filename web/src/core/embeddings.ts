// Texts to vectors, and how alike they are.
import type { Api } from "./api.ts";
import { Failure } from "./failure.ts";
import { field, listOr, textOr } from "./json.ts";
import type { Embeddings } from "./types.ts";

function fromBase64(text: string): Float32Array {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 2 }, (_, index) => view.getFloat32(index * 4, true));
}

export function unitLength(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length === 0 ? vector : vector.map((value) => value / length);
}

export function similarities(vectors: readonly Float32Array[]): number[][] {
  return vectors.map((a) => vectors.map((b) => Math.max(-1, Math.min(1, a.reduce((total, value, index) => total + value * (b[index] ?? 0), 0)))));
}

export function createEmbeddings(api: Api): Embeddings {
  return {
    similarities,
    embed: async (model, texts, signal) => {
      const body: Record<string, unknown> = { input: texts, encoding_format: "base64" };
      if (model !== null) body["model"] = model;
      const answer = await api.json("/v1/embeddings", { method: "POST", body, signal });
      const vectors = listOr(field(answer, "data")).map((one) => unitLength(fromBase64(textOr(field(one, "embedding"), ""))));
      if (vectors.length !== texts.length) throw new Failure("INFERENCE_ERROR", "The server returned a different number of vectors than there are texts.");
      return vectors;
    },
  };
}
