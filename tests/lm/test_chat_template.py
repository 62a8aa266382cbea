"""Chat templates: options, thinking, dates, missing system roles, and answers that are already begun."""

import sys

import chat_models
import pytest
from models import load
from refusals import refusals

from evalbias import LocalLM
from evalbias.cli.models import open_lm
from evalbias.lm import render as chat_template
from evalbias.lm.render import ChatTemplate, Renderer
from evalbias.lm.tokens import PromptTokenizer
from evalbias.options import MeasuringModels

CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Output: a cat."}]


def renderer(tokenizer, **options):
    return Renderer(PromptTokenizer(tokenizer), options)


def test_a_model_that_thinks_does_not_unless_asked():
    thoughts = "<think>\n\n</think>\n\n"
    assert renderer(chat_models.chatml())(CHAT).text.endswith(f"assistant\n{thoughts}")
    assert renderer(chat_models.chatml(), enable_thinking=True)(CHAT).text.endswith("assistant\n")


@pytest.mark.parametrize("name", ["unheard_of", "thinking", "messages", "add_generation_prompt", "tokenize"])
def test_an_option_that_the_template_lacks_is_refused(name):
    with pytest.raises(ValueError, match=f"no option '{name}'.*'enable_thinking'"):
        renderer(chat_models.chatml(), **{name: True})


def test_options_without_a_chat_template_and_one_that_is_no_text_are_refused(folders):
    with pytest.raises(ValueError, match=r"No chat template is used here.*\{'enable_thinking': True\}"):
        renderer(chat_models.unigram(), enable_thinking=True)
    with pytest.raises(ValueError, match="No chat template is used here"):
        load(folders["gpt2"], template_options={"enable_thinking": True})
    tokenizer = chat_models.chatml()
    tokenizer.chat_template = 5
    with pytest.raises(ValueError, match=r"template of .* is 5 in place of a text: fetch its tokenizer_config\.json"):
        ChatTemplate(tokenizer)


def test_the_date_is_the_same_on_every_day():
    assert "Today Date: 26 Jul 2024\n" in renderer(chat_models.llama_3())(CHAT).text
    assert "Today Date: 1 May 2026\n" in renderer(chat_models.llama_3(), date_string="1 May 2026")(CHAT).text
    tokenizer = chat_models.llama_3()
    tokenizer.chat_template = 'On {{ strftime_now( "%Y-%m-%d" ) }}{% for m in messages %}{{ m.content }}{% endfor %}'
    assert renderer(tokenizer)(CHAT).text == "On 2024-07-26Judge.Output: a cat."
    tokenizer.chat_template = "{% set f = '%Y' %}" + tokenizer.chat_template.replace('"%Y-%m-%d"', "f")
    with pytest.raises(ValueError, match="date in a format that it computes"):
        renderer(tokenizer)


def test_the_options_are_part_of_a_models_name_and_state(tmp_path):
    folder = chat_models.save(chat_models.llama_3, tmp_path / "m")
    plain = load(folder)
    dated = load(folder, template_options={"date_string": "1 May 2026"})
    assert plain.model != dated.model
    assert plain.provenance()["model"] != dated.provenance()["model"]
    state = dated.dump_state()
    assert state["template_options"] == {"date_string": "1 May 2026"}
    given = {name: state[name] for name in ("model", "device", "dtype", "template_options")}
    assert LocalLM(**given).model == dated.model
    options = MeasuringModels(device="cpu", dtype="float32", template_options='{"date_string": "1 May 2026"}')
    assert open_lm(folder, options).model == dated.model


test_bad_options_on_the_command_line = refusals(
    lambda name, text: open_lm(name, MeasuringModels(template_options=text)),
    ("m", "enable_thinking=true", "is not valid JSON"),
    ("m", "[1]", "in place of a JSON object"),
    ("embedded", '{"enable_thinking": true}', "embedded has no chat template"),
    ("dspy:openai/gpt", '{"enable_thinking": true}', "dspy:openai/gpt has no chat template"),
)


@pytest.mark.parametrize("beginning", ["It is", "It is ", "  It is\n", " ", "", "\n\nScore: "])
@pytest.mark.parametrize("make", [chat_models.llama_3, chat_models.gemma, chat_models.llama_2, chat_models.chatml])
def test_an_answer_that_is_begun_keeps_its_blanks(make, beginning):
    chat = [CHAT[1], {"role": "assistant", "content": beginning}]
    begun, other = (renderer(make())([chat[0], {**chat[1], "content": text}]) for text in (beginning, "X"))
    assert begun.text == other.text.removesuffix("X") + beginning
    assert other.text.endswith("X")
    assert begun.follow == other.follow


def test_a_template_without_a_system_role_gets_the_system_text_in_the_first_turn():
    folded = [{"role": "user", "content": "Judge.\n\nOutput: a cat."}]
    gemma = renderer(chat_models.gemma())
    assert gemma(CHAT) == gemma(folded)
    assert gemma(CHAT).text == "<bos><start_of_turn>user\nJudge.\n\nOutput: a cat.<end_of_turn>\n<start_of_turn>model\n"
    assert gemma(CHAT[:1]).text == "<bos><start_of_turn>user\nJudge.<end_of_turn>\n<start_of_turn>model\n"
    turns = [*CHAT, {"role": "assistant", "content": "4"}, {"role": "user", "content": "Output: a mat."}]
    assert gemma(turns) == gemma([*folded, *turns[2:]])
    tokenizer = chat_models.gemma()
    tokenizer.chat_template = "Follow: {% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
    for text in ("Judge.", "Follow"):  # it would drop the system text
        chat = [{"role": "system", "content": text}, CHAT[1]]
        assert renderer(tokenizer)(chat).text == f"Follow: [{text}\n\nOutput: a cat.]"
    tokenizer.chat_template = tokenizer.chat_template.replace("Follow", "Below is an instruction of the system")
    assert "[Judge.\n\nOutput: a cat.]" in renderer(tokenizer)(CHAT).text
    assert "system\nJudge.<|im_end|>" in renderer(chat_models.chatml())(CHAT).text


def test_messages_that_a_template_rejects():
    with pytest.raises(ValueError, match=r"rejects messages with the roles \['user', 'user'\]: Roles must alternate"):
        renderer(chat_models.gemma())([CHAT[1], CHAT[1]])
    tokenizer = chat_models.chatml()
    for condition in ("m.role != 'assistant'", "m.role == 'user'"):
        tokenizer.chat_template = f"{{% for m in messages if {condition} %}}{{{{ m.content }}}}{{% endfor %}}"
        with pytest.raises(ValueError, match="leaves out the assistant's messages"):
            renderer(tokenizer)(CHAT)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SQUARES = "{% set n = namespace(x=10) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x % 7 }}"


@pytest.mark.parametrize(("template", "match"), [
    (LOOP, "template of .* takes more than 100,000 steps: use another model"),
    ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}", "more than 100,000"),
    ("{{ lipsum(n=99999) }}", "takes more than 100,000 steps"),
    (SQUARES, r"rejects messages .*\* of a number above 1,000,000"),
    ("{{ 9 ** (9 ** 9) }}", r"rejects messages .*\*\* of a number above 1,000,000"),
    ("{{ 'x' * 10000000000 }}", r"rejects messages .*\* of a number above 1,000,000"),
    ("{{ messages + 5 }}", "rejects messages .*TypeError.*Use other roles, or another model"),
    ("{% if %}", "template of .* cannot be read .TemplateSyntaxError.*: use another model"),
    ("{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}", "template of .* cannot be read .RecursionError"),
])  # fmt: skip
def test_a_template_that_runs_on_or_fails_is_refused(monkeypatch, template, match):
    monkeypatch.setattr(chat_template, "STEPS", 100_000)
    tokenizer, traced = chat_models.chatml(), sys.gettrace()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=match):
        renderer(tokenizer)([CHAT[1]])
    assert sys.gettrace() is traced


@pytest.mark.parametrize("make", chat_models.MAKERS.values())
def test_prompts_are_those_of_transformers(make):
    tokenizer = make()
    tokenizer.chat_template = tokenizer.chat_template or "{{ 7 // 2 * '-' }}{{ '%d' % 3 }}{{ messages[0] | tojson }}"
    ours = ChatTemplate(tokenizer)
    given = {"add_generation_prompt": True, "tokenize": False, "enable_thinking": False}
    expected = tokenizer.apply_chat_template([CHAT[1]], chat_template=ours._source, **given)
    assert ours([CHAT[1]], answer=True) == expected


def test_truncation_and_padding_of_a_tokenizer_file_do_not_apply(tmp_path):
    text = "Source: the cat sat on the mat. Output: a cat was sitting on a mat. Quality: 4 the answer is yes or no"
    folder = chat_models.save(chat_models.chatml, tmp_path / "m")
    plain = load(folder)
    backend = plain.engine.loaded.tokenizer.backend_tokenizer
    count = len(backend.encode(text).ids)
    expected = plain.loglikelihood([("4\n", text)])[0]
    assert count > 22
    for settings in ({"max_length": 22}, {"max_length": 22, "direction": "left"}):
        backend.enable_truncation(**settings)
        backend.enable_padding(length=64)
        backend.save(f"{folder}/tokenizer.json")
        cut = load(folder)
        (answer,) = cut.loglikelihood([("4\n", text)])
        assert answer.tokens == expected.tokens == count
        assert answer.total == pytest.approx(expected.total, abs=1e-5)
        assert len(cut.engine.loaded.tokenizer(text)["input_ids"]) == count
        backend.no_truncation()
        backend.no_padding()
