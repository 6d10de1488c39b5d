import signal
import subprocess
import sys

from tfscale.launch.guard import kill_what_is_left


def test_only_what_has_not_ended_is_killed():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(2)]
    first, second = (process.pid for process in processes)
    try:
        kill_what_is_left([f"+{first}\n", f"+{second}\n", f"-{first}\n"])
        assert processes[1].wait(timeout=30) == -signal.SIGKILL
        assert processes[0].poll() is None
    finally:
        for process in processes:
            process.kill()
            process.wait()
