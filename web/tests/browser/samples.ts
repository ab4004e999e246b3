// Texts for pictures and tests: what answers look like at their longest, shortest and strangest.

export const markdownAnswer = `## Sorting in a nutshell

Sorting algorithms trade **time** for *memory*, and both for \`simplicity\`. Three that are worth knowing:

1. **Quicksort** divides around a pivot; it is quick on average.
2. **Mergesort** keeps equal elements in order.
3. **Heapsort** needs no memory beside the list.

| Algorithm | Average | Worst | Stable |
|---|---:|---:|:---:|
| Quicksort | n log n | n² | no |
| Mergesort | n log n | n log n | yes |
| Heapsort | n log n | n log n | no |

\`\`\`python
def quicksort(values: list[int]) -> list[int]:
    """Returns a sorted copy."""
    if len(values) < 2:
        return values
    pivot, *rest = values
    low = [each for each in rest if each < pivot]
    high = [each for each in rest if each >= pivot]
    return quicksort(low) + [pivot] + quicksort(high)
\`\`\`

> Measure before you choose: for fifty elements, the simplest one wins.

More in the [documentation](https://example.org/sorting).`;

export const sixScripts = `English: The quick brown fox jumps over the lazy dog.

Ελληνικά: Η γρήγορη αλεπού πηδά πάνω από τον σκύλο.

Русский: Быстрая лиса прыгает через ленивую собаку.

中文：敏捷的狐狸跳过了懒狗。日本語：素早い狐が犬を飛び越える。

हिन्दी: तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है।

ไทย: สุนัขจิ้งจอกกระโดดข้ามสุนัขขี้เกียจ`;

export const rightToLeft = "الثعلب البني السريع يقفز فوق الكلب الكسول. هذا نص طويل بما يكفي ليمتد على أكثر من سطر واحد في العمود، ليُرى كيف تُرتَّب الكلمات من اليمين إلى اليسار.\n\n- أولاً: القراءة\n- ثانياً: الكتابة مع `code()`\n\n> اقتباس قصير من كتاب\n\n| العمود | القيمة |\n|---|---|\n| الأول | 1 |\n| الثاني | 2 |";

export const tasksAndFormulas = `Before the release:

- [x] write the tests
- [ ] measure the water, H<sub>2</sub>O
- a plain point

The energy is \\( E = m c^2 \\), and in a line of its own:

\\[
\\sum_{i=1}^{n} x_i * y_i = \\frac{a}{b}
\\]

Press <kbd>Ctrl</kbd> + <kbd>C</kbd>.`;

export const wideTable = `| ${Array.from({ length: 14 }, (_, at) => `Column ${at + 1}`).join(" | ")} |\n|${"---|".repeat(14)}\n${Array.from({ length: 4 }, (_, row) => `| ${Array.from({ length: 14 }, (__, at) => `value ${row + 1}.${at + 1}`).join(" | ")} |`).join("\n")}`;

export const longCode = `A long one:\n\n\`\`\`c\n${Array.from({ length: 2000 }, (_, at) => `int value_${at} = ${at} * 2; // line ${at + 1}`).join("\n")}\n\`\`\``;

/** An export with one conversation of so many messages. */
export function longConversation(messages: number): string {
  const now = Date.now();
  const made = Array.from({ length: messages }, (_, at) => ({
    id: `m${at}`, parentId: at === 0 ? null : `m${at - 1}`, role: at % 2 === 0 ? "user" : "assistant", createdAt: now + at, text: at % 2 === 0 ? `Question ${at}: how are lists sorted?` : markdownAnswer,
    state: "complete", model: at % 2 === 0 ? null : "default", settings: null, finishReason: "stop", error: null, statistics: null,
  }));
  const selected = Object.fromEntries(made.map(({ id, parentId }) => [parentId ?? "", id]));
  return JSON.stringify({ format: "quarrel-conversations", version: 1, exportedAt: "", conversations: [{ id: "long", createdAt: now, updatedAt: now, title: "Long", titleIsOwn: true, model: null, settings: {}, selected, messages: made }] });
}

/** What a server tells of the texts that a question was asked with. */
export const notes: readonly Record<string, unknown>[] = [
  { number: 1, cut: true, score: 0.6123, id: 17, text: "Certificates are renewed with certbot, every 60 days.", doc_id: "", source: "ops.md", metadata: { offset: 0, bytes: 812 } },
  { number: 2, score: 0.481, id: 21, text: "Runbook 7: when a certificate has expired,\n1. stop the proxy,\n2. renew it,\n3. start the proxy.", doc_id: "runbook-7" },
  { number: 3, score: 0.407, id: 44, text: "TLS keys lie in /etc/ssl/private." },
];
