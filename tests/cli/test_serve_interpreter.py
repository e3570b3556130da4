"""How a process that lasts collects garbage."""

import gc
import weakref

import pytest

from admission.cli.serve import interpreter


class Knows:
    """Something that refers to itself, as what a lead knows does."""

    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    gc.unfreeze()


def test_what_a_former_lead_knew_is_collected_when_the_next_but_one_begins():
    known = []
    for _ in range(4):
        with interpreter.without_garbage():
            lead = Knows()
        known.append(weakref.ref(lead))
        del lead
    assert [each() for each in known[:2]] == [None, None]
