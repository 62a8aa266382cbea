"""Which of several servers answers which prompt."""

import random
import zlib
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evalbias.lm.routing import groups, rendezvous, route
from evalbias.lm.tokens import key_of

SERVERS = ["http://a/v1", "http://b/v1", "http://c/v1"]
IDLE = [0, 0, 0]


def prompt(*parts):
    """Tokens of parts, 32 for each, so that different parts share no block."""
    return key_of([token for part in parts for token in [zlib.crc32(str(part).encode())] * 32])


def documents(count, outputs, start="demonstrations"):
    return [prompt(start, 1000 + d, 2000 + 100 * d + o) for d in range(count) for o in range(outputs)]


def test_what_begins_alike_goes_to_one_server_and_every_server_has_its_share():
    keys = documents(30, 10)
    plan = route(keys, SERVERS, IDLE)
    assert sorted(number for numbers in plan for number in numbers) == list(range(300))
    places = [{number // 10 for number in numbers} for numbers in plan]  # documents of each server
    assert sum(map(len, places)) == 30  # no document is on two
    assert max(map(len, plan)) <= 125
    assert all(keys[a] <= keys[b] for numbers in plan for a, b in pairwise(numbers))


def test_a_prefix_of_most_prompts_is_shared_out_and_does_not_starve_the_others():
    keys = documents(1, 240) + documents(6, 10, start="another prompt")
    plan = route(keys, SERVERS, IDLE)
    assert max(map(len, plan)) <= 125
    assert min(map(len, plan)) >= 50
    for document in range(6):
        own = range(240 + 10 * document, 250 + 10 * document)
        assert sum(any(number in own for number in numbers) for numbers in plan) == 1


def test_a_prefix_stays_with_its_server_in_later_calls():
    keys = documents(30, 10)
    random.Random(0).shuffle(keys)
    homes = [{keys[n][: 4 * 64] for n in numbers} for numbers in route(keys, SERVERS, IDLE)]
    fewer = [key for key in keys if random.Random(key).random() < 0.6]
    again = [{fewer[n][: 4 * 64] for n in numbers} for numbers in route(fewer, SERVERS, IDLE)]
    stayed = sum(len(a & b) for a, b in zip(homes, again, strict=True))
    assert stayed >= 27  # the few others found their server full in one of the calls


def test_a_server_that_leaves_changes_only_its_own_prefixes():
    prefixes = [str(n).encode() for n in range(300)]
    before = {p: SERVERS[rendezvous(p, SERVERS)[0]] for p in prefixes}
    after = {p: SERVERS[rendezvous(p, SERVERS[:2])[0]] for p in prefixes}
    assert all(after[p] == before[p] for p in prefixes if before[p] != SERVERS[2])
    assert min(Counter(before.values()).values()) > 70


def test_busy_servers_get_less():
    plan = route(documents(30, 10), SERVERS, [0, 0, 300])
    assert len(plan[2]) == 0  # its share of 600 is 200
    assert max(map(len, plan)) <= 250


def test_equal_prompts_fill_one_server_after_the_other():
    plan = route([prompt("one")] * 30, SERVERS, IDLE)
    assert sorted(map(len, plan)) == [4, 13, 13]  # 13 = ceil(1.25 * 30 / 3)


def test_groups_by_hand():
    a, b, c, d = (bytes([letter]) * 64 for letter in b"abcd")
    keys = [a + b + c, a + b + d, a + c, d + a]
    assert [(g.start, g.stop, g.prefix) for g in sorted(groups(keys, 2), key=lambda g: g.start)] == [
        (0, 2, a + b),  # set apart from a + c by b
        (2, 3, a + c),
        (3, 4, d),  # set apart by d
    ]
    assert [(g.start, g.stop, g.prefix) for g in groups([a + b], 1)] == [(0, 1, a + b)]
    assert groups([], 1) == []


@given(st.lists(st.binary(max_size=200).map(lambda key: key.replace(b"\xff", b"")), max_size=40), st.integers(1, 10))
def test_groups_part_the_prompts(keys, most):
    keys = sorted(keys)
    found = sorted(groups(keys, most), key=lambda group: group.start)
    assert [n for g in found for n in range(g.start, g.stop)] == list(range(len(keys)))
    assert all(g.stop - g.start <= most for g in found)
    assert all(keys[n].startswith(g.prefix) for g in found for n in range(g.start, g.stop))
