"""Garbage collection in long-running processes."""

import gc
import weakref

import pytest

from admission.serving.runtime import without_garbage


class SelfReferencing:
    """An object in a reference cycle, like the state of a leader."""

    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def unfrozen_afterwards():
    yield
    gc.unfreeze()


@pytest.mark.long
def test_leader_state_is_garbage_collected_two_leaders_later():
    known = []
    for _ in range(4):
        with without_garbage():
            lead = SelfReferencing()
        known.append(weakref.ref(lead))
        del lead
    assert [each() for each in known[:2]] == [None, None]
