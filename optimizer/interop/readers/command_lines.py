"""Turns command lines of vLLM, SGLang and TensorRT-LLM, alone or in a script, into the server that they start."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, pairwise
from typing import Any, Final

from optimizer.interop.asks import whole
from optimizer.interop.readers.flags import flag_faults

OPTIONS: Final[Mapping[str, str]] = {
    "--model": "model",
    "--model-path": "model",
    "--tensor-parallel-size": "tensor_parallel",
    "-tp": "tensor_parallel",
    "--tp": "tensor_parallel",
    "--tp-size": "tensor_parallel",
    "--pipeline-parallel-size": "pipeline_parallel",
    "-pp": "pipeline_parallel",
    "--pp": "pipeline_parallel",
    "--pp-size": "pipeline_parallel",
    "--data-parallel-size": "data_parallel",
    "-dp": "data_parallel",
    "--dp": "data_parallel",
    "--dp-size": "data_parallel",
    "--max-model-len": "context",
    "--context-length": "context",
    "--max-seq-len": "context",
    "--dtype": "dtype",
    "--quantization": "quantization",
    "-q": "quantization",
    "--kv-cache-dtype": "kv_dtype",
    "--gpu-memory-utilization": "memory_share",
    "--free-gpu-memory-fraction": "memory_share",
    "--kv-cache-free-gpu-memory-fraction": "memory_share",
    "--max-num-seqs": "sequences",
    "--max-running-requests": "sequences",
    "--max-batch-size": "sequences",
    "--nnodes": "nodes",
}
"""Options of vLLM 0.33, SGLang 0.5 and TensorRT-LLM 1.2 (its underscores as hyphens) that say what a server takes."""

TGI: Final = re.compile(r"(?:^|/)(?:huggingface-)?text-generation-inference\b")
"""Images of text-generation-inference, whose entry point is its launcher: what follows are its options."""

_TGI_FLAGS: Final[Mapping[str, str]] = {
    "--model-id": "--model",
    "--num-shard": "--tensor-parallel-size",
    "--quantize": "--quantization",
    "--max-total-tokens": "--max-model-len",
    "--cuda-memory-fraction": "--gpu-memory-utilization",
}
"""What the launcher of text-generation-inference calls the options (its documentation, read 2026-11-30)."""

_DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
_QUANTIZATIONS: Final[Mapping[str, str]] = {
    "fp8": "fp8",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "w8a8_int8": "int8",
    "w8a8_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp4": "fp4",
    "mxfp4": "mxfp4",
    "bitsandbytes": "nf4",
}
_THOUSANDS: Final = {"k": 1000, "K": 1024, "m": 1_000_000, "M": 1024**2}
_SUFFIXED: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^}$]*))?\})", re.ASCII)
_PRODUCT: Final = re.compile(r"\$\(\(\s*([\w${}]+)\s*\*\s*([\w${}]+)\s*\)\)", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_ARRAY: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=\((.*)", re.ASCII | re.DOTALL)
_SPREAD: Final = re.compile(
    r"\$\{([A-Za-z_]\w*)\[[@*]\]\}|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)",
    re.ASCII,
)
_SEVERAL: Final = re.compile(r"\s*-\S*\s+\S")
_OVER_LINES: Final = re.compile(
    r'^[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*="[^"\n]{0,4000}\n[^"]{0,4000}"[ \t]*$', re.MULTILINE
)
"""A variable whose quoted value goes over several lines."""

_MOST_WORDS: Final = 10_000
_DECLARING: Final = ("export", "declare", "local", "readonly", "typeset", "-a", "-r", "-ra", "-ar")
_BEGIN: Final = re.compile(r"[^ \t\r\n]")
_WORD: Final = re.compile(r"""(?:[^ \t\r\n'"\\]++|\\.|'[^']*+'|"(?:[^"\\]++|\\.)*+")++(?=[ \t\r\n]|$)""")
_QUOTED: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]++|\\.)*+)"|\\(.)""")
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
"""Words of a POSIX shell, and the quotes and backslashes that it takes off."""

_NAME: Final = re.compile(r"[\w./~$]")
_LONGEST_LINE: Final = 100_000
_LONGEST_VALUE: Final = 1000
_MOST_FILLED: Final = 1_000_000
"""Bounds of what variables may add: a few lines of `A=$A$A` would fill the memory otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a command line starts. `line` is where it begins, `lines` where each of its options stands.

    `others` are options that are none of OPTIONS, each with the word that follows and its line.
    """

    engine: str
    line: int
    values: Mapping[str, str]
    lines: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def count(self, name: str) -> int | None:
        """An option that is a whole number; None where it is not given or is none."""
        return whole(self.values.get(name))

    @property
    def precision(self) -> str | None:
        """The weights' dtype as the flags say it; None leaves it to the checkpoint."""
        quantization = self.values.get("quantization", "").lower()
        return _QUANTIZATIONS.get(quantization) or _DTYPES.get(self.values.get("dtype", "").lower())

    @property
    def data_parallel(self) -> int:
        """Copies on the machine: ranks of attention that share the accelerators of TP are none."""
        if "--enable-dp-attention" in self.others:
            return 1
        local = next(
            (self.others[flag][0] for flag in ("--data-parallel-size-local", "-dpl") if flag in self.others), None
        )
        return whole(local) or self.count("data_parallel") or 1

    @property
    def kv_precision(self) -> str | None:
        return "fp8" if self.values.get("kv_dtype", "").startswith("fp8") else None

    @property
    def context_tokens(self) -> int | None:
        """vLLM also takes 32k (32,000) and 32K (32,768)."""
        match = _SUFFIXED.fullmatch(self.values.get("context", ""))
        return int(float(match[1]) * _THOUSANDS.get(match[2], 1)) if match else None

    @property
    def memory_share(self) -> float | None:
        try:
            share = float(self.values["memory_share"])
        except (KeyError, ValueError):
            return None
        return share if 0 < share <= 1 else None


def servers(text: str, first_line: int = 1, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """The servers that a script's lines start; `variables` are put in for their names."""
    for line, words in commands(text, first_line, variables):
        found = server([word for _, word in words], [number for number, _ in words], line)
        if found is not None:
            yield found
        else:
            for number, script in inner_scripts(words):
                yield from servers(script, number)


_SHELL_FLAG: Final = re.compile(r"-[a-z]*c")
"""`bash -c`, `sh -lc`: the next word is a script."""


def inner_scripts(words: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The scripts that a command hands to a shell in one word, with their lines."""
    for (_, flag), (number, word) in pairwise(words):
        if _SHELL_FLAG.fullmatch(flag) and " " in word:
            yield number, word


def served(found: Server | None) -> dict[str, Any]:
    """The fields of an Ask that a server fills, its model left out."""
    if found is None:
        return {}
    return {
        "tensor_parallel": found.count("tensor_parallel"),
        "pipeline_parallel": found.count("pipeline_parallel"),
        "data_parallel": found.data_parallel,
        "max_sequences": found.count("sequences"),
        "context_tokens": found.context_tokens,
        "precision": found.precision,
        "quantization": found.values.get("quantization"),
        "kv_precision": found.kv_precision,
        "engine": found.engine,
        "memory_share": found.memory_share,
        "flag_faults": flag_faults(found),
    }


def tgi_server(words: Sequence[str], numbers: Sequence[int], line: int, variables: Mapping[str, str]) -> Server | None:
    """The server that text-generation-inference's image starts; each of its options may also be a variable."""
    given = {flag: variables.get(flag.removeprefix("--").replace("-", "_").upper()) for flag in _TGI_FLAGS}
    pairs = [word for flag, value in given.items() if value for word in (flag, value)]
    spelt = [_in_words_of_vllm(word) for word in (*pairs, *words)]
    found = server(["vllm", "serve", *spelt], [line] * (2 + len(pairs)) + list(numbers), line)
    return None if found is None else replace(found, engine="tgi")


def _in_words_of_vllm(word: str) -> str:
    key, equals, value = word.partition("=")
    return f"{_TGI_FLAGS.get(key, key)}{equals}{value}"


def server(words: Sequence[str], numbers: Sequence[int], line: int) -> Server | None:
    """The server that a command's words start; None for another command."""
    start = _start(words)
    if start is None:
        return None
    engine, index = start
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    others: dict[str, tuple[str, int]] = {}
    # A word that is no option's value is the model; behind an option that is not known here nobody can tell.
    is_positional = True
    while index < len(words):
        word = words[index]
        key, _, value = word.partition("=")
        name = OPTIONS.get(key.replace("_", "-"))
        if name is not None:
            if not value and index + 1 < len(words):
                index += 1
                value = words[index]
            values[name], lines[name] = value, numbers[index]
            is_positional = True
        elif word.startswith("-"):
            is_positional = bool(value)
            others[key.replace("_", "-")] = value or "".join(words[index + 1 : index + 2]), numbers[index]
        elif is_positional and "model" not in values and _NAME.match(word):
            values["model"], lines["model"] = word, numbers[index]
        else:
            is_positional = False
        index += 1
    return Server(engine=engine, line=line, values=values, lines=lines, others=others)


def _start(words: Sequence[str]) -> tuple[str, int] | None:
    """Engine and the index of the first word behind the program's name."""
    for index, word in enumerate(words):
        program, following = word.rpartition("/")[2], words[index + 1 : index + 2]
        if program in ("vllm", "sglang") and following == ["serve"]:
            return program, index + 2
        if program == "trtllm-serve" or word == "tensorrt_llm.commands.serve":
            return "tensorrt-llm", index + (2 if following == ["serve"] else 1)
        if word in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"):
            return "vllm", index + 1
        if word == "sglang.launch_server":
            return "sglang", index + 1
    return None


def commands(
    text: str, first_line: int = 1, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Each command's first line and its words with theirs; lines that end in a backslash go on.

    Variables that are given, or assigned on a line of their own before, are put in for their names, arrays for
    `"${NAME[@]}"`, and the words of a variable that holds options, as long as that does not make the text much longer.
    """
    known = {name: value for name, value in (variables or {}).items() if len(value) <= _LONGEST_VALUE}
    text = _PRODUCT.sub(lambda match: _product(match, known), text)
    text = _OVER_LINES.sub(_on_one_line, text)
    room = _MOST_FILLED
    arrays = _options(known, first_line)
    for begin, found in _without_arrays(_split(text, first_line), arrays):
        words = _spread(found, arrays) if arrays and room > 0 else found
        if words is not found:
            room -= sum(len(word) for _, word in words)
        plain = [(number, filled(word, known) if room > 0 and "$" in word else word) for number, word in words]
        room -= sum(len(after) - len(before) for (_, before), (_, after) in zip(words, plain, strict=True))
        assigned = _assigned(plain)
        if assigned is None:
            yield begin, plain
        else:
            known |= {name: value for name, value in assigned.items() if len(value) <= _LONGEST_VALUE}
            arrays |= _options(assigned, begin)


def _on_one_line(match: re.Match[str]) -> str:
    """An assignment without the ends of lines in its value; those behind it keep their numbers."""
    value = match[0].replace("\\\n", " ").replace("\n", " ")
    return value + "\n" * match[0].count("\n")


def _options(variables: Mapping[str, str], line: int) -> dict[str, list[tuple[int, str]]]:
    """The words of variables that hold several options, which scripts name without quotes."""
    several = {name: value for name, value in variables.items() if _SEVERAL.match(value)}
    return {name: [(line, word) for word in _words(value)] for name, value in several.items()}


def _assigned(words: Sequence[tuple[int, str]]) -> dict[str, str] | None:
    """The variables of a command that does nothing but assign them; None for another one."""
    found: dict[str, str] = {}
    for _, word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:
            found[match[1]] = match[2]
        elif word != "export":
            return None
    return found


def _without_arrays(
    split: Iterable[tuple[int, list[tuple[int, str]]]], arrays: dict[str, list[tuple[int, str]]]
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """The commands; `NAME=(…)`, on one line or several, goes to the arrays instead."""
    values: list[tuple[int, str]] | None = None
    for begin, found in split:
        words = found
        if values is None:
            words = list(dropwhile(lambda word: word[1] in _DECLARING, found))
            match = _ARRAY.fullmatch(words[0][1]) if words else None
            if match is None:
                yield begin, found
                continue
            values = arrays[match[1]] = [*arrays.get(match[1], ())] if match[2] else []
            words = [(words[0][0], match[3]), *words[1:]]
        last = words[-1][1]
        is_end = last.count(")") > last.count("(")
        if is_end:
            words = [*words[:-1], (words[-1][0], last.removesuffix(")"))]
        values += [(number, word) for number, word in words if word]
        values = None if is_end else values


def _spread(words: list[tuple[int, str]], arrays: Mapping[str, list[tuple[int, str]]]) -> list[tuple[int, str]]:
    """The words with names of arrays replaced by what they hold; themselves where there is none, or too much."""
    found: list[tuple[int, str]] = []
    for number, word in words:
        match = _SPREAD.fullmatch(word)
        name = None if match is None else match[1] or match[2] or match[3]
        found += arrays.get(name or "", [(number, word)])
        if len(found) > _MOST_WORDS:
            return words
    return words if found == words else found


def _product(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """The value of `$((A * B))` where both are known whole numbers; else the text as it is."""
    factors = [whole(variables.get(factor.strip("${}"), factor)) for factor in match.groups()]
    return str(math.prod(factor for factor in factors if factor)) if all(factors) else match[0]


def filled(word: str, variables: Mapping[str, str]) -> str:
    """The word with $NAME, ${NAME} and ${NAME:-DEFAULT} filled in, as far as they are known."""
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2]) or match[3] or match[0], word)


def _split(text: str, first_line: int) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    words: list[tuple[int, str]] = []
    begin = first_line
    for offset, raw in enumerate(text.splitlines()):
        number = first_line + offset
        if not words:
            begin = number
        goes_on = raw.rstrip().endswith("\\")
        words += [(number, word) for word in _words(raw.rstrip().removesuffix("\\"))]
        if not goes_on and words:
            yield begin, words
            words = []
    if words:
        yield begin, words


def _words(line: str) -> list[str]:
    """The words of a line without its comment; none where a quote is left open, which another line closes."""
    if len(line) > _LONGEST_LINE:
        return []
    words, at = [], 0
    while (begin := _BEGIN.search(line, at)) and begin[0] != "#":
        word = _WORD.match(line, begin.start())
        if word is None:
            return []
        words.append(_QUOTED.sub(_unquoted, word[0]))
        at = word.end()
    return words


def _unquoted(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    return single if single is not None else escaped if double is None else _ESCAPED.sub(r"\1", double)
