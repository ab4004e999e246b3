#!/usr/bin/env python3
"""What models make of texts without generating: tokens, rendered conversations, rankings; and answers in channels."""
import json
import math
import unittest

from serve_harness import ServeTest


class TextTest(ServeTest):
    @classmethod
    def prepare(cls):
        cls.models = [cls.toy, cls.make_toy("embed", "vectors.gguf"), cls.make_toy("channels", "channels.gguf"),
                      cls.make_toy("rank", "scores.gguf")]
        cls.arguments = ("--ctx", "256", "--cache-tokens", "1k", "--threads", "1")

    def post(self, path, **body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def refused(self, words, path, **body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 400, answer)
        self.assertLessEqual(set(answer), {"error", "code"})
        for word in words:
            self.assertIn(word, answer["error"])


class Tokens(TextTest):
    def test_there_and_back(self):
        text = "Hello <|im_end|> the world ∑"
        tokens = self.post("/tokenize", content=text)
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(self.post("/detokenize", tokens=tokens["tokens"]), {"content": text})
        plain = self.post("/tokenize", content=text, parse_special=False)
        self.assertGreater(plain["count"], tokens["count"])
        pieces = self.post("/tokenize", content=text, with_pieces=True)["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], tokens["tokens"])
        joined = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        self.assertEqual(joined.decode(), text)
        self.assertTrue(any(isinstance(piece["piece"], list) for piece in pieces), "half a character is bytes")
        self.assertEqual(self.post("/tokenize", content="")["tokens"], [])
        around = self.post("/tokenize", model="vectors", content="the fox", add_special=True)["count"]
        self.assertEqual(around, self.post("/tokenize", model="vectors", content="the fox")["count"] + 2)

    def test_what_is_refused(self):
        self.refused(["text"], "/tokenize", text="a")
        self.refused(["content"], "/tokenize", add_special=True)
        self.refused(["tokens"], "/detokenize", tokens="a")
        self.refused(["outside"], "/detokenize", tokens=[1 << 30])
        self.assertEqual(self.server.post("/tokenize", {"model": "nobody", "content": "a"})[0], 404)
        self.assertEqual(self.server.post("/tokenize", {"model": self.toy, "content": "a"})[0], 404)

    def test_a_conversation_is_rendered(self):
        asked = {"messages": [{"role": "user", "content": "hi"}]}
        self.assertEqual(self.post("/apply-template", **asked),
                         {"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"})
        self.assertEqual(self.post("/apply-template", add_generation_prompt=False, **asked)["prompt"],
                         "<|im_start|>user\nhi<|im_end|>\n")
        self.refused(["messages"], "/apply-template", messages="hi")


class Penalties(TextTest):
    def test_openais_count_the_answer_alone(self):
        """What a bias makes the likeliest is said until it was said too often; in the prompt it was already."""
        word = self.post("/tokenize", content=" the")["tokens"]
        self.assertEqual(len(word), 1)
        asked = {"prompt": word * 20, "max_tokens": 16, "temperature": 0, "logit_bias": {str(word[0]): 12}}
        said = self.post("/v1/completions", **asked)["choices"][0]["text"]
        self.assertEqual(said, " the" * 16)
        often = self.post("/v1/completions", frequency_penalty=2, **asked)["choices"][0]["text"]
        self.assertTrue(often.startswith(" the"), often)
        self.assertNotEqual(often, said)
        ours = self.post("/api/native/generate", frequency_penalty=2, **{**asked, "prompt": said})["text"]
        self.assertFalse(ours.startswith(" the"), "it counts the prompt too")


class Ranking(TextTest):
    documents = ["a dog", "the fox", "one two three"]

    def test_by_likeness_of_vectors(self):
        answer = self.post("/rerank", model="vectors", query="the fox", documents=self.documents, return_documents=True)
        self.assertEqual((answer["model"], answer["object"]), ("vectors", "list"))
        self.assertGreater(answer["usage"]["total_tokens"], 6)
        results = answer["results"]
        self.assertEqual(sorted(result["index"] for result in results), [0, 1, 2])
        self.assertEqual((results[0]["index"], results[0]["document"]), (1, {"text": "the fox"}))
        self.assertAlmostEqual(results[0]["relevance_score"], 1, places=4)
        scores = [result["relevance_score"] for result in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(len(self.post("/v1/rerank", model="vectors", query="a", documents=self.documents, top_n=2)
                             ["results"]), 2)
        vectors = self.post("/v1/embeddings", model="vectors", input=["the fox", *self.documents])["data"]
        vectors = [row["embedding"] for row in vectors]
        for result in results:
            cosine = sum(x * y for x, y in zip(vectors[0], vectors[result["index"] + 1]))
            self.assertAlmostEqual(result["relevance_score"], cosine, places=4)

    def test_by_scores_of_pairs(self):
        """A model that ranks reads each text together with the query."""
        asked = {"model": "scores", "query": "the fox", "texts": self.documents}
        raw = {each["index"]: each["score"] for each in self.post("/rerank", raw_scores=True, **asked)}
        for index, text in enumerate(self.documents):
            ids = [self.post("/tokenize", model="scores", content=each, add_special=True)["tokens"]
                   for each in ("the fox", text)]
            score = self.post("/v1/embeddings", model="scores", input=ids[0] + ids[1][1:])["data"][0]["embedding"]
            self.assertEqual(len(score), 1)
            self.assertAlmostEqual(raw[index], score[0], places=4)
        self.assertGreater(max(raw.values()) - min(raw.values()), 0.01)
        for each in self.post("/rerank", **asked):
            self.assertAlmostEqual(each["score"], 1 / (1 + math.exp(-raw[each["index"]])), places=4)
        results = self.post("/v1/rerank", model="scores", query="the fox", documents=self.documents)["results"]
        self.assertEqual([each["index"] for each in results], sorted(raw, key=raw.get, reverse=True))

    def test_the_other_form(self):
        answer = self.post("/rerank", model="vectors", query="the fox", texts=self.documents, return_text=True)
        self.assertEqual((answer[0]["index"], answer[0]["text"]), (1, "the fox"))
        self.assertEqual(set(answer[0]), {"index", "score", "text"})
        self.assertEqual(len(self.post("/rerank", model="vectors", query="q", texts=["the fox " * 2000])), 1)
        self.refused(["truncate"], "/rerank", model="vectors", query="q", texts=["the fox " * 2000], truncate=False)
        self.refused(["query"], "/rerank", documents=["a"])
        status, answer = self.server.post("/v1/rerank", {"query": "a"})
        self.expect_error(400, (status, answer), param="documents")


class Channels(TextTest):
    """Greedy with a bias says what the test wants: a model that only thinks has an empty answer."""

    def ids(self, text):
        return self.post("/tokenize", model="channels", content=text)["tokens"]

    def test_content_is_the_final_channel_alone(self):
        word = self.ids(" the")
        self.assertEqual(len(word), 1)
        asked = {"model": "channels", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0,
                 "logit_bias": {str(word[0]): 100}, "logprobs": True}
        thinking = self.post("/v1/chat/completions", **asked)
        self.assertEqual(thinking["choices"][0]["message"]["content"], "")
        self.assertEqual(thinking["choices"][0]["logprobs"]["content"], [])
        self.assertEqual(thinking["usage"]["completion_tokens"], 6)
        self.assertEqual(thinking["usage"]["completion_tokens_details"], {"reasoning_tokens": 6})
        data = self.server.events("/v1/chat/completions", {**asked, "stream": True})
        *_, last, done = self.server.events("/v1/chat/completions", {**asked, "stream": True,
                                                                     "stream_options": {"include_usage": True}})
        self.assertEqual(done, "[DONE]")
        self.assertEqual(json.loads(last)["usage"]["completion_tokens_details"], {"reasoning_tokens": 6})
        self.assertEqual("".join(json.loads(each)["choices"][0]["delta"].get("content", "") for each in data[:-1]), "")
        # The model goes on in the final channel where the prompt left it there.
        prompt = self.post("/apply-template", model="channels", messages=asked["messages"])["prompt"]
        spoken = self.post("/v1/completions", model="channels", prompt=prompt + "<|channel|>final<|message|>", max_tokens=3,
                           temperature=0, logit_bias=asked["logit_bias"])
        self.assertEqual(spoken["choices"][0]["text"], " the the the")
        self.assertEqual(spoken["usage"]["completion_tokens_details"], {"reasoning_tokens": 0})


class Likelihood(TextTest):
    def test_ollamas_logprobs(self):
        asked = {"model": "toy", "prompt": "the fox", "logprobs": True, "top_logprobs": 3,
                 "options": {"temperature": 0, "num_predict": 5}}
        whole = self.post("/api/generate", stream=False, **asked)
        self.assertEqual(len(whole["logprobs"]), 5)
        for entry in whole["logprobs"]:
            self.assertEqual(set(entry), {"token", "logprob", "bytes", "top_logprobs"})
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertLessEqual(entry["logprob"], 0)
        status, _, data = self.server.request("POST", "/api/generate", asked)
        lines = [json.loads(line) for line in data.splitlines()]
        self.assertEqual([entry for line in lines for entry in line.get("logprobs", [])], whole["logprobs"])
        chat = self.post("/api/chat", model="toy", stream=False, messages=[{"role": "user", "content": "a"}], logprobs=True,
                         options={"num_predict": 2, "temperature": 0})
        self.assertEqual([set(entry) for entry in chat["logprobs"]], [{"token", "logprob", "bytes"}] * 2)
        self.refused(["top_logprobs"], "/api/generate", model="toy", prompt="a", top_logprobs=2)
        self.refused(["top_logprobs"], "/api/generate", model="toy", prompt="a", logprobs=True, top_logprobs=21)


if __name__ == "__main__":
    unittest.main()
