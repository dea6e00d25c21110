"""Grade one exercise file in a process of its own, for grade.py:

    python tests/grade_file.py 01 PATH BLANK ...

A line of standard output is a message, [kind, text, ...] in JSON:

    ready                       torch and the chapter are loaded
    unready why                 they cannot be
    broken why                  the file cannot be read as Python
    ran troubles                the file was run; what failed at its top level
    verdict name status text    of a blank
    doing what                  what is being tried now: told if the process ends or hangs in it
    print text                  what the learner's code prints
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import io
import json
import linecache
import os
import threading
import time
import traceback

from grading import ExerciseFile, blanks_of, limit_memory, told

PRINTED = 4000  # letters of one print


class Post(io.TextIOBase):
    """The way out, also for what the learner's code prints: it may write to this and to no other
    stream, so it can neither break the messages nor clear a screen."""

    def __init__(self):
        self.out, self.lock = os.fdopen(os.dup(1), "w", encoding="ascii"), threading.Lock()
        self.pid = os.getpid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)

    def send(self, kind, *parts):
        if os.getpid() != self.pid:  # a copy of this process, which an answer has made
            os._exit(1)
        try:
            with self.lock:
                self.out.write(json.dumps([kind, *parts]) + "\n")
                self.out.flush()
        except (OSError, ValueError):  # closed: nobody listens any more
            os._exit(1)

    def write(self, text):
        self.send("print", str(text)[:PRINTED])
        return len(text)

    def open_streams(self):
        """Give the learner's code its streams, whatever it has done to them before."""
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(), self, self


class Watch(threading.Thread):
    """Says every second what is being done, with the learner's line and the call."""

    def __init__(self, post, path):
        super().__init__(daemon=True)
        self.post, self.path = post, str(path)
        self.watched = threading.get_ident()
        self.text, self.calls = "", None

    def doing(self, text, calls=None):
        self.text, self.calls = text, calls
        self.post.send("doing", text)

    def run(self):
        while True:
            time.sleep(1)
            called = self.calls.told() if self.calls else ""
            self.post.send("doing", f"{self.text}{self.line()}{called}")

    def line(self):
        """The learner's line that is running now, or ''."""
        frame = sys._current_frames().get(self.watched)
        while frame and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        if not frame:
            return ""
        code = linecache.getline(self.path, frame.f_lineno).strip()
        return f"\n    line {frame.f_lineno}: {code}"


def main(number, path, *names):
    try:
        blanks = blanks_of(number)
    except Exception as error:  # somebody has changed the chapter's code
        place = traceback.extract_tb(error.__traceback__)[-1]
        Post().send("unready", f"{told(error)} ({Path(place.filename).name}, line {place.lineno})")
        return
    post = Post()
    post.send("ready")
    post.open_streams()
    watch = Watch(post, path)
    watch.start()
    limit_memory()
    try:
        file = ExerciseFile(path, blanks, watch.doing)
    except Exception as error:
        post.send("broken", told(error))
        return
    post.send("ran", file.troubles)
    for blank in (b for name in names for b in blanks if b.name == name):
        post.open_streams()
        post.send("verdict", blank.name, *file.grade(blank, watch.doing))
    os._exit(0)  # no thread and no exit function of the file's own may hold us up


if __name__ == "__main__":
    main(*sys.argv[1:])
