// One call of each kind through a client made from the server's description: it compiles, and answers have the types that
// the description says. Prints what came.
import createClient from "openapi-fetch";
import type { paths } from "./api.ts";

declare const process: { argv: string[] };
const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

const chat = await client.POST("/v1/chat/completions", {
  body: { model: "toy", messages: [{ role: "user", content: "Hello" }], temperature: 0, max_tokens: 8 },
});
if (chat.error) throw new Error(chat.error.error.message);
if (typeof chat.data !== "object" || chat.data === null || !("choices" in chat.data)) throw new Error("no JSON");
const content: string | null | undefined = chat.data.choices[0]?.message.content;

const models = await client.GET("/v1/models/{id}", { params: { path: { id: "toy" } } });
if (models.error) throw new Error(models.error.error.message);
const name: string = models.data.id;

const missing = await client.GET("/v1/models/{id}", { params: { path: { id: "nobody" } } });
const code: string | null | undefined = missing.error?.error.code;

console.log(JSON.stringify({ content, name, code }));
