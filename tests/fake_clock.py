"""A clock for tests: it stands still but for what is told to take time."""

import time


class FakeClock:
    """In place of time.perf_counter, as long as `monkeypatch` holds."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def takes(self, seconds, call):
        """-> call, but so many seconds later."""
        def slow(*args, **kwargs):
            self.now += seconds
            return call(*args, **kwargs)
        return slow
