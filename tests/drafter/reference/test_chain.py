from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from drafter.reference import DraftModel, draft_chain
from drafter.reference.drafts import lowest_argmax
from specmodel.errors import ParameterError

Request = tuple[DraftModel, Tensor, Tensor, Tensor]
MakeRequest = Callable[..., Request]


def test_each_step_is_fed_the_guess_and_the_carry_of_the_one_before(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    chain = draft_chain(*any_request, num_steps=4)
    step = model.extend(tokens, states, positions).last()
    offsets = model.weights["d2t"]
    for index in range(4):
        guess = int(step.logits[0].argmax())
        assert int(chain.draft_ids[index]) == guess
        assert int(chain.tokens[index]) == guess + int(offsets[guess])
        assert torch.equal(chain.logits[index], step.logits[0])
        position = torch.tensor([len(tokens) + index])
        step = model.step(chain.tokens[index : index + 1], step.carry, position, step.cache)


def test_log_probabilities_are_those_of_a_softmax(any_request: Request) -> None:
    chain = draft_chain(*any_request, num_steps=3)
    probabilities = chain.logits.exp() / chain.logits.exp().sum(dim=-1, keepdim=True)
    torch.testing.assert_close(chain.log_probs.exp(), probabilities.amax(dim=-1))


def test_forcing_the_own_guesses_changes_nothing(any_request: Request) -> None:
    free = draft_chain(*any_request, num_steps=4)
    forced = draft_chain(*any_request, num_steps=4, forced_tokens=free.tokens[:3])
    assert torch.equal(forced.logits, free.logits)
    assert torch.equal(forced.tokens, free.tokens)


def test_a_forced_token_changes_the_steps_after_it_only(any_request: Request) -> None:
    free = draft_chain(*any_request, num_steps=4)
    other = free.tokens[:3].clone()
    other[1] = (other[1] + 1) % 61
    forced = draft_chain(*any_request, num_steps=4, forced_tokens=other)
    assert torch.equal(forced.logits[:2], free.logits[:2])
    assert not torch.allclose(forced.logits[2], free.logits[2])
    assert not torch.allclose(forced.logits[3], free.logits[3])


def test_a_deeper_draft_begins_like_a_shallow_one(any_request: Request) -> None:
    deep, shallow = (draft_chain(*any_request, num_steps=steps) for steps in (5, 2))
    assert torch.equal(deep.logits[:2], shallow.logits)


def test_a_second_round_on_the_kept_cache_equals_a_fresh_request(any_request: Request) -> None:
    """Rows of the first draft are dropped: the target's own states take their place."""
    model, tokens, states, positions = any_request
    first = draft_chain(model, tokens[:3], states[:3], positions[:3], num_steps=3)
    assert (len(first.cache), len(first.draft_cache)) == (3, 5)
    second = draft_chain(
        model, tokens[3:], states[3:], positions[3:], num_steps=3, cache=first.cache
    )
    torch.testing.assert_close(second.logits, draft_chain(*any_request, num_steps=3).logits)


def test_the_lowest_id_wins_among_equal_logits(make_request: MakeRequest) -> None:
    model, *rows = make_request()
    flat = DraftModel(
        model.spec,
        model.weights | {"lm_head.weight": torch.zeros_like(model.weights["lm_head.weight"])},
    )
    assert draft_chain(flat, *rows, num_steps=3).draft_ids.tolist() == [0, 0, 0]
    ties = torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 2.0], [float("-inf")] * 3])
    assert lowest_argmax(ties).tolist() == [1, 0, 0]


@pytest.mark.parametrize("num_steps", [0, -1])
def test_a_draft_without_steps_is_refused(num_steps: int, make_request: MakeRequest) -> None:
    with pytest.raises(ParameterError, match="num_steps must be at least 1"):
        draft_chain(*make_request(), num_steps=num_steps)


def test_a_wrong_number_of_forced_tokens_is_refused(make_request: MakeRequest) -> None:
    with pytest.raises(ParameterError, match="num_steps - 1 = 2 of them, got 3 of them"):
        draft_chain(*make_request(), num_steps=3, forced_tokens=torch.tensor([1, 2, 3]))
