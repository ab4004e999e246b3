#include "text/default_templates.h"

#include <algorithm>

namespace quarrel {
namespace {

constexpr std::string_view kChatml = R"jinja({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%})jinja";

constexpr std::string_view kLlama3 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%})jinja";

// The system message stands inside the first user turn.
constexpr std::string_view kLlama2 = R"jinja({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'assistant' -%}
{{- ' ' + message.content | trim + ' ' + eos_token -}}
{%- else -%}
{{- bos_token + '[INST] ' + ns.system + message.content | trim + ' [/INST]' -}}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})jinja";

constexpr std::string_view kMistral = R"jinja({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- elif message.role == 'assistant' -%}
{{- ' ' + message.content | trim + eos_token -}}
{%- else -%}
{{- '[INST] ' + ns.system + message.content + ' [/INST]' -}}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})jinja";

constexpr std::string_view kZephyr = R"jinja({%- for message in messages -%}
{{- '<|' + message.role + '|>\n' + message.content + eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>\n' -}}
{%- endif -%})jinja";

// Two roles only: the system message goes before the first user's text, and the assistant is "model".
constexpr std::string_view kGemma = R"jinja({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- else -%}
{%- set role = 'model' if message.role == 'assistant' else 'user' -%}
{{- '<start_of_turn>' + role + '\n' + ns.system + message.content | trim + '<end_of_turn>\n' -}}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<start_of_turn>model\n' -}}
{%- endif -%})jinja";

constexpr std::string_view kPhi3 = R"jinja({%- for message in messages -%}
{{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>\n' -}}
{%- endif -%})jinja";

constexpr std::string_view kGranite = R"jinja({%- for message in messages -%}
{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_of_role|>assistant<|end_of_role|>' -}}
{%- endif -%})jinja";

constexpr std::string_view kDeepseek = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- message.content -}}
{%- elif message.role == 'assistant' -%}
{{- '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' -}}
{%- else -%}
{{- '<｜User｜>' + message.content -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<｜Assistant｜>' -}}
{%- endif -%})jinja";

constexpr std::string_view kVicuna = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- message.content + '\n\n' -}}
{%- elif message.role == 'assistant' -%}
{{- 'ASSISTANT: ' + message.content + eos_token + '\n' -}}
{%- else -%}
{{- 'USER: ' + message.content + '\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'ASSISTANT:' -}}
{%- endif -%})jinja";

constexpr std::string_view kAlpaca = R"jinja({%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- message.content + '\n\n' -}}
{%- elif message.role == 'assistant' -%}
{{- '### Response:\n' + message.content + eos_token + '\n\n' -}}
{%- else -%}
{{- '### Instruction:\n' + message.content + '\n\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '### Response:\n' -}}
{%- endif -%})jinja";

// For a vocabulary without any turn markers: words that every text model has seen.
constexpr std::string_view kPlain = R"jinja({%- for message in messages -%}
{{- message.role | capitalize + ': ' + message.content + '\n\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'Assistant:' -}}
{%- endif -%})jinja";

struct Format {
  std::string_view name;
  std::string_view alias;
  std::string_view source;
  // A vocabulary with all of these tokens speaks this format. None: the format is never chosen, only named.
  std::string_view first_sign, second_sign;
};

// From the plainest sign to the vaguest: a vocabulary may carry several.
constexpr Format kFormats[] = {
    {"chatml", "qwen", kChatml, "<|im_start|>", "<|im_end|>"},
    {"llama3", "llama-3", kLlama3, "<|start_header_id|>", "<|end_header_id|>"},
    {"gemma", "gemma2", kGemma, "<start_of_turn>", "<end_of_turn>"},
    {"granite", "", kGranite, "<|start_of_role|>", "<|end_of_role|>"},
    {"deepseek", "", kDeepseek, "<｜User｜>", "<｜Assistant｜>"},
    {"phi3", "phi-3", kPhi3, "<|user|>", "<|end|>"},
    {"zephyr", "tinyllama", kZephyr, "<|user|>", "<|assistant|>"},
    {"mistral", "", kMistral, "[INST]", "[/INST]"},
    {"llama2", "llama-2", kLlama2, "▁[", "INST"},
    {"vicuna", "", kVicuna, "", ""},
    {"alpaca", "", kAlpaca, "", ""},
    {"plain", "", kPlain, "", ""},
};

constexpr std::string_view kNames[] = {"chatml", "llama3",  "gemma",  "granite", "deepseek", "phi3",
                                       "zephyr", "mistral", "llama2", "vicuna",  "alpaca",   "plain"};
static_assert(std::size(kNames) == std::size(kFormats));

}  // namespace

std::span<const std::string_view> default_template_names() noexcept { return kNames; }

std::string_view find_default_template(std::string_view name) noexcept {
  for (const Format& format : kFormats) {
    if (format.name == name || (!format.alias.empty() && format.alias == name)) return format.source;
  }
  return {};
}

std::string_view choose_default_template(const std::function<bool(std::string_view)>& has_token) {
  for (const Format& format : kFormats) {
    if (!format.first_sign.empty() && has_token(format.first_sign) && has_token(format.second_sign)) return format.name;
  }
  return "plain";
}

}  // namespace quarrel
