"""What is done to its end, though Ctrl-C comes in the midst of it."""

import signal
import threading

import pytest

from tfscale.replicas.undisturbed import undisturbed


def interrupted(times, *, depth=1):
    """What is done inside, one after the other, before Ctrl-C is heard."""
    done = []

    def act(left):
        with undisturbed():
            if left > 1:
                act(left - 1)
            else:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            done.append(left)

    with pytest.raises(KeyboardInterrupt):
        act(depth)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return done


def test_ctrl_c_waits():
    assert interrupted(1) == [1]


def test_a_second_one_does_not_wait():
    assert interrupted(2) == []


def test_one_inside_of_another():
    assert interrupted(1, depth=2) == [1, 2]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_python_does_not_handle_it(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with undisturbed():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread():
    handlers = []

    def look():
        with undisturbed():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
