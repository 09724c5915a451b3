"""Names of dtypes: the spellings of flags, checkpoints and tables mean one format; others are refused."""

import pytest

from optimizer.sizing.dtypes import weight_format
from providers.errors import UnknownName


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("int4", "INT4", "4bit", "4-bit", "awq", "gptq", "int4-awq", "gptq-int4", "awq 4-bit", "w4a16-g128"), "int4"),
        (("nf4", "bnb-4bit", "int4-bnb", "bnb-nf4", "4-bit (bitsandbytes)"), "nf4"),
        (("int8", "8bit", "8-bit", "w8a8", "int8-w8a8", "int8 bnb", "llm.int8()"), "int8"),
        (("w8a16", "gptq-8bit", "int8-gptq"), "int8_gptq"),
        (("fp8", "float8", "fp8-dynamic", "fp8_e4m3", "fp8-e4m3fn", "w8a8-fp8"), "fp8"),
        (("fp4", "nvfp4"), "fp4"),
        (("bf16", "bfloat16", "BF16"), "bf16"),
        (("fp16", "half", "float16"), "fp16"),
        (("Q4_K_M", "gguf-q4_k_m", "q4_k_m (gguf)"), "q4_k_m"),
    ],
)
def test_spellings_of_one_format_mean_it(names: tuple[str, ...], expected: str) -> None:
    assert {weight_format(name).name for name in names} == {expected}


@pytest.mark.parametrize("name", ["int3", "int4-g64", "fp8-int4", "gguf", "bnb", "4", "", "bf16-mixed-up"])
def test_a_spelling_that_could_mean_other_bits_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        weight_format(name)
