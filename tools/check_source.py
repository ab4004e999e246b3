#!/usr/bin/env python3
"""Checks the rules of the house that no compiler sees: which folder may include which, what may be called where, sizes.

    check_source.py               checks the tree it lies in and prints path:line: complaint; exits 1 if there is any
    check_source.py --self-test   feeds every rule a breach and a look-alike, and expects the right answer
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Includes point down only: what each folder of src may include besides itself. "quarrel" are the public headers, which
# include nothing of src.
BELOW = {
    "base": set(),
    "quant": {"base"},
    "gguf": {"base", "quant"},
    "store": {"base", "gguf"},
    "text": {"base", "quant", "gguf"},
    "convert": {"base", "quant", "gguf", "text"},
    "backend": {"base", "quant"},
    "model": {"base", "quant", "gguf", "backend"},
    "sched": {"base"},
    "flight": {"base"},
    "engine": {"base", "quant", "gguf", "backend", "model", "sched"},
    "session": {"base", "quant", "gguf", "store", "text", "backend", "model", "sched", "engine"},
    "ingest": {"base", "gguf", "text", "engine", "session", "flight"},
    "api": {"base", "quant", "gguf", "store", "backend", "model", "sched", "text", "engine", "session", "quarrel"},
    "server": {"base", "quant", "gguf", "store", "backend", "model", "sched", "text", "engine", "session", "flight",
               "ingest"},
    "app": {"base", "quant", "gguf", "store", "backend", "model", "sched", "text", "convert", "engine", "session",
            "flight", "ingest", "server"},
}
GENERATED_HEADERS = {"quarrel_version.h"}
ARCHITECTURES = ("llama|llama4|mixtral|mistral|mistral3|qwen2|qwen2moe|qwen3|qwen3moe|qwen3next|phi2|phi3|gemma|gemma2|"
                 "gemma3|granite|granitemoe|granitehybrid|nemotron|nemotron_h|nemotron_h_moe|gpt-oss|mamba|mamba2|"
                 "nomic-bert|bert|smollm3|starcoder2|deepseek2|falcon|jamba")
MAX_LINES = 800
CPP = (".h", ".cpp", ".inl", ".cu", ".cuh")
MEASURED = CPP + (".py", ".ts", ".cmake")

# Rules on C++ code under src with comments and string literals taken out: pattern, exempt path, complaint.
CODE_RULES = (
    (r"\b(?:secure_)?getenv\b", r"src/base/environment\.cpp",
     "the environment is read in src/base/environment.cpp alone"),
    (r"#\s*include\s*<(?:\w*mmintrin|x86intrin|arm_neon|arm_sve)\.h>", r"src/backend/cpu/.*",
     "intrinsics belong under src/backend/cpu"),
    (r"#\s*include\s*<(?:cuda|cublas)\w*(?:\.h)?>|<<<", r"src/backend/cuda/.*", "CUDA belongs under src/backend/cuda"),
    (r"#\s*include\s*<arrow/", r"src/flight/arrow/.*", "Arrow belongs under src/flight/arrow"),
    (r"\batomicAdd\s*\(\s*(?:\([^)]*float|&?\w*(?:sum|total|float)\w*)", None,
     "no float atomics: the same plan gives the same bits"),
    (r"\bstd::w?regex|#\s*include\s*<regex>", None, "std::regex is slow and recursive: match by hand"),
    (r"(?<![\w.>:])(?:std::|::)?(?:exit|_exit|_Exit|quick_exit|abort)\s*\(|\bstd::terminate\b", r"src/app/main\.cpp",
     "only src/app/main.cpp ends the process: throw an Error"),
)
# On the same with its string literals.
STRING_RULES = (
    (rf'"(?:{ARCHITECTURES})(?:\.[^"\s]*)?"',
     r"src/model/architectures\.cpp|src/text/.*|src/convert/(?:hugging_face_\w+|tokenizer_json)\.cpp",
     "architectures are named in src/model/architectures.cpp alone"),
)
# On the whole text of every file; split, so that this file does not break them.
TEXT_RULES = (
    (r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b", "unfinished: do it or leave it out"),
    (r"(?<![\w.$){}/~-])/(?:work|home|root)(?=/|[\s\"'`),;:]|$)", "a path of somebody's machine"),
)

# On CMake files outside tests/ and bench/: `make run` installs nothing that only tests and benchmarks are compiled with.
PROGRAM_BUILD_RULE = (r"find_package\s*\(\s*(?:GTest|benchmark)\b|\b(?:GTest|benchmark)::|\blibpcre2",
                      "only tests/ and bench/ may need what only they are compiled with")

# Comments, raw strings, strings, characters (not the quotes inside numbers).
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'''
                   r"|'(?:\\'|\\[^\n']+|[^'\\\n])'", re.DOTALL)


def without(text, strings):
    """C++ without comments, and without what stands in string literals if `strings`. Lines keep their numbers."""
    def replace(match):
        token = match.group()
        if token.startswith("/"):
            return " " + "\n" * token.count("\n")
        if strings and not text[text.rfind("\n", 0, match.start()) + 1:match.start()].lstrip().startswith("#"):
            return '""' + "\n" * token.count("\n")
        return token
    return TOKEN.sub(replace, text)


def check_includes(path, code):
    folder = path.split("/")[1]
    if folder not in BELOW:
        yield 1, f"src/{folder} has no row in tools/check_source.py that says what it may include"
        return
    for match in re.finditer(r'^\s*#\s*include\s*"([^"]*)"', code, re.MULTILINE):
        target = match.group(1)
        line = code.count("\n", 0, match.start(1)) + 1
        top = target.split("/")[0]
        if "/" not in target:
            if target not in GENERATED_HEADERS:
                yield line, f'write the include with its folder: "{folder}/{target}"'
        elif top != folder and top not in BELOW[folder]:
            yield line, f"src/{folder} must not include {target}: includes point down only"


def check_targets(makefile):
    """Every target in .PHONY is for people, so `make help` lists it: what it looks for is this pattern."""
    listed = set(re.findall(r"^([a-z-]*):[^#\n]*## .", makefile, re.MULTILINE))
    for match in re.finditer(r"^\.PHONY:((?:\\\n|[^\n])*)", makefile, re.MULTILINE):
        for name in re.finditer(r"[^\s\\]+", match.group(1)):
            if name.group() not in listed:
                line = makefile.count("\n", 0, match.start(1) + name.start()) + 1
                yield line, f"`make help` does not list {name.group()}: write what it does behind its rule, after ##"


def check(path, text):
    """The complaints about one file, as (line, message)."""
    def matches(rule, subject, message):
        for match in re.finditer(rule, subject, re.MULTILINE):
            yield subject.count("\n", 0, match.start()) + 1, message

    for rule, message in TEXT_RULES:
        yield from matches(rule, text, message)
    if path.endswith(MEASURED):
        lines = text.count("\n")
        if lines > MAX_LINES:
            yield lines, f"{lines} lines: {MAX_LINES} are the most"
        yield from matches("\t", text, "a tab: indent with spaces")
    if path.endswith((".h", ".cuh")) and not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield 1, "a header begins with #pragma once"
    # The CUDA kernels' own program has functions instead.
    if path.startswith("tests/") and not path.startswith("tests/cuda/") and path.endswith("_test.cpp") and "TEST" not in text:
        yield 1, "a file of tests without a test passes whatever the code does"
    if os.path.basename(path) == "CMakeLists.txt" or path.endswith(".cmake"):
        if not path.startswith(("tests/", "bench/")):
            yield from matches(PROGRAM_BUILD_RULE[0], text, PROGRAM_BUILD_RULE[1])
    if path == "Makefile":
        yield from check_targets(text)
    if path.startswith(("include/", "examples/")):
        for match in re.finditer(r'^\s*#\s*include\s*"(?!quarrel/)', text, re.MULTILINE):
            yield text.count("\n", 0, match.start()) + 1, "what is public includes the standard library and itself alone"
    if path.startswith("src/") and path.endswith(CPP):
        code = without(text, strings=True)
        yield from check_includes(path, code)
        for rules, subject in ((CODE_RULES, code), (STRING_RULES, without(text, strings=False))):
            for rule, exempt, message in rules:
                if not (exempt and re.fullmatch(exempt, path)):
                    yield from matches(rule, subject, message)


def tree():
    """The files of the tree that git tracks or would, or all of them where there is no git; never test data."""
    try:
        listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
        paths = set(listing.split("\0"))
    except (OSError, subprocess.CalledProcessError):
        paths = set()
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in ("build", ".git", ".venv", "node_modules", "__pycache__")]
            paths.update(os.path.relpath(os.path.join(folder, f), ROOT) for f in files)
    return sorted(p for p in paths if not p.startswith("tests/data/") and os.path.isfile(os.path.join(ROOT, p)))


def check_tree():
    complaints = 0
    paths = tree()
    for path in paths:
        with open(os.path.join(ROOT, path), "rb") as file:
            content = file.read()
        if b"\0" in content:
            continue
        for line, message in check(path, content.decode("utf-8", "replace")):
            print(f"{path}:{line}: {message}")
            complaints += 1
    if not paths:
        print("check_source.py found no files", file=sys.stderr)
    return 1 if complaints or not paths else 0


# path, text, and a word of the complaint it must earn, or None if it must earn none
CASES = (
    ("tests/base/a_test.cpp", "", "without a test"),
    ("tests/base/a_test.cpp", "TEST(Base, Works) {}\n", None),
    ("src/base/a.cpp", '#include "quant/types.h"\n', "point down"),
    ("src/engine/a.cpp", '#include "text/tokenizer.h"\n', "point down"),
    ("src/engine/a.cpp", '#include "session/ask.h"\n', "point down"),
    ("src/session/a.cpp", '#include "text/tokenizer.h"\n#include "store/store.h"\n', None),
    ("src/session/a.cpp", '#include "api/errors.h"\n', "point down"),
    ("src/model/a.cpp", '#include "text/tokenizer.h"\n', "point down"),
    ("src/gguf/a.cpp", '#include "convert/convert.h"\n', "point down"),
    ("src/gguf/a.cpp", '#include "store/pull.h"\n', "point down"),
    ("src/store/a.cpp", '#include "gguf/file.h"\n', None),
    ("src/engine/a.cpp", '#include "store/store.h"\n', "point down"),
    ("src/convert/a.cpp", '#include "model/spec.h"\n', "point down"),
    ("src/sched/a.cpp", '#include "backend/backend.h"\n', "point down"),
    ("src/model/a.cpp", '#include "backend/tensor.h"\n#include "model/spec.h"\n', None),
    ("src/api/a.cpp", '#include "engine/engine.h"\n#include "quarrel/quarrel.h"\n', None),
    ("src/engine/a.cpp", '#include "quarrel/quarrel.h"\n', "point down"),
    ("src/app/a.cpp", '#include "api/model_impl.h"\n', "point down"),
    ("include/quarrel/a.h", '#pragma once\n#include "base/error.h"\n', "public"),
    ("include/quarrel/a.h", '#pragma once\n#include "quarrel/b.h"\n#include <string>\n', None),
    ("examples/a.cpp", '#include "engine/engine.h"\n', "public"),
    ("src/app/a.cpp", '#include "quarrel_version.h"\n// #include "nowhere/a.h"\n', None),
    ("src/quant/a.cpp", '#include "types.h"\n', "with its folder"),
    ("src/stray/a.cpp", "int a;\n", "no row"),
    ("src/app/a.cpp", 'const char* a = std::getenv("A");\n', "environment"),
    ("src/base/environment.cpp", 'const char* a = std::getenv("A");\n', None),
    ("src/app/a.cpp", "char a = '\\'', b = '\"'; int c = 1'000; auto d = getenv(e);  // '\n", "environment"),
    ("src/app/a.cpp", '// getenv is elsewhere\nconst char* a = "getenv";\n', None),
    ("src/quant/a.cpp", "#include <immintrin.h>\n", "intrinsics"),
    ("src/backend/cpu/a.inl", "#include <immintrin.h>\n", None),
    ("src/engine/a.cpp", "#include <cuda_runtime_api.h>\n", "CUDA"),
    ("src/backend/a.cpp", "void f() { kernel<<<1, 2>>>(); }\n", "CUDA"),
    ("src/backend/cuda/a.cu", "#include <cuda_fp16.h>\nvoid f() { kernel<<<1, 2>>>(); atomicAdd(arrivals, 1); }\n", None),
    ("src/flight/a.cpp", "#include <arrow/buffer.h>\n", "Arrow"),
    ("src/flight/arrow/a.cpp", "#include <arrow/buffer.h>\n", None),
    ("src/flight/a.cpp", '#include "session/embedding.h"\n', "point down"),
    ("src/app/a.cpp", '#include "flight/longbow.h"\n', None),
    ("src/backend/cuda/a.cu", "void f() { atomicAdd(&sum, 1.0f); }\n", "float atomics"),
    ("src/text/a.cpp", "std::regex pattern;\n", "regex"),
    ("src/text/a.cpp", "#include <regex>\n", "regex"),
    ("src/base/a.cpp", "void f() { std::exit(1); }\n", "ends the process"),
    ("src/base/a.cpp", "void f() { abort(); }\n", "ends the process"),
    ("src/app/main.cpp", "void f() { std::exit(1); }\n", None),
    ("src/base/a.cpp", "int f() { return exit_code(1) + thing.abort() + at_exit(2); }\n", None),
    ("src/base/a.cpp", "int a;\n" * (MAX_LINES + 1), "lines"),
    ("src/base/a.cpp", "int a;\n" * MAX_LINES, None),
    ("docs/a.md", "TO" "DO: write this\n", "unfinished"),
    ("src/base/a.cpp", "// XX" "X\n", "unfinished"),
    ("src/base/a.cpp", 'auto a = "name-XX' 'XXXX";\n', None),
    ("src/engine/a.cpp", 'if (name == "llama") {}\n', "architectures"),
    ("src/app/a.cpp", 'auto a = file.number("qwen2.context_length");\n', "architectures"),
    ("src/model/architectures.cpp", 'auto a = "llama";\n', None),
    ("src/text/tokenizer.cpp", 'auto a = "llama";\n', None),
    ("src/convert/hugging_face_names.cpp", 'auto a = "llama";\n', None),
    ("src/convert/recode.cpp", 'auto a = "llama";\n', "architectures"),
    ("src/app/a.cpp", '// a "llama" in words\nauto a = "llamas eat grass";\n', None),
    ("tests/unit/a.cpp", 'auto a = "llama";\n', None),
    ("src/base/a.cpp", "\tint a;\n", "tab"),
    ("Makefile", "all:\n\ttrue\n", None),
    ("Makefile", ".PHONY: help run\nhelp:  ## this list\nrun: help\n", "does not list run"),
    ("Makefile", ".PHONY: help \\\n  run\nhelp:  ## this list\nrun: help  # ## a remark\n", "does not list run"),
    ("Makefile", ".PHONY: help \\\n  run\nhelp:  ## this list\nrun: help $(MORE)  ## a chat\n", None),
    ("Makefile", ".PHONY: help\nhelp:  ## this list\nbuild/a:\n\ttrue\n", None),
    ("src/base/a.h", "int a;\n", "pragma once"),
    ("src/base/a.h", "// What it owns.\n#pragma once\n", None),
    ("src/CMakeLists.txt", "find_package(GTest REQUIRED)\n", "only tests/"),
    ("cmake/a.cmake", "pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)\n", "only tests/"),
    ("bench/load/CMakeLists.txt", "find_package(benchmark REQUIRED)\n", None),
    ("src/CMakeLists.txt", "find_package(fmt REQUIRED)\n", None),
    ("docs/a.md", "see /" "work/main for it\n", "machine"),
    ("scripts/a", "cd /" "root\n", "machine"),
    ("docs/a.md", "https://example.org/" "home/ and ../" "work/x\n", None),
)


def self_test():
    failures = 0
    for path, text, expected in CASES:
        messages = [message for _, message in check(path, text)]
        right = not messages if expected is None else len(messages) == 1 and expected in messages[0]
        if not right:
            print(f"self-test: {path} with {text[:60]!r}: expected {expected!r}, got {messages}")
            failures += 1
    print(f"check_source.py: {len(CASES) - failures} of {len(CASES)} cases right")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--self-test"]):
        sys.exit(__doc__)
    sys.exit(self_test() if sys.argv[1:] else check_tree())
