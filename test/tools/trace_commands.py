"""ch3-offload-trace as its user meets it. Usage: trace_commands.py PROGRAM"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
HEADER = "<8sIIIIQQQQQQQIHH40s"  # TraceFileHeader in src/engine/trace.h
RECORD = "<QQQQIBB2x"  # TraceRecord
EPOCH_NS = 1_700_000_000_000_000_000

NAMES = """SendPosted SendQueued SendBuffered SendShort SendEager RtsSent OptimisticSent CtsArrived
WritePosted WriteDone BounceStarted AckArrived SendDone CancelRequested CancelDecided MessageArrived
Matched Unexpected PayloadDropped CtsSent AckSent ReceiveDone ReceivePosted ReceiveCancelled Probe
CreditRequested CreditSent PacketSent PacketArrived PeerConnected PeerFailed Sleep Wake MemoryRegistered
MemoryRefused MemoryEvicted MemoryGone SendGiven PacketGiven ReceiveGiven MatchedReceiveGiven CancelGiven
SendTaken ReceiveTaken CancelTaken NewsTaken""".split()
CLIENT_NAMES = ["Sleep", "Wake", *NAMES[NAMES.index("SendGiven"):]]
ENGINE_NAMES = [name for name in NAMES if name not in CLIENT_NAMES]


def trace_file(self_rank, job_size, events, lost=0, node=1, host=b"node1", client=False):
    """events: (time in ns, name, peer, number, detail), or with cookie and outcome behind these"""
    end_ns = max([event[0] for event in events], default=0) + 1000
    header = struct.pack(HEADER, b"CH3TRACE", 3, 40, self_rank, job_size, node, len(events), lost,
                         0, EPOCH_NS, end_ns, EPOCH_NS + end_ns, 4242 + self_rank, 0, client, host)
    return header + b"".join(struct.pack(RECORD, time, number, detail, cookie, peer, NAMES.index(name), outcome)
                             for time, name, peer, number, detail, cookie, outcome
                             in ((*event, 0, 0)[:7] for event in events))


# A short message, an unexpected one, a rendezvous, and one whose receiver dies.
SENDER = [
    (1000, "PeerConnected", 1, 0, 65536),
    (1500, "SendPosted", 1, 1, 64, 0xA, 0), (1700, "SendShort", 1, 1, 64),
    (2000, "SendPosted", 1, 2, 4096), (2100, "SendShort", 1, 2, 4096),
    (3000, "SendPosted", 1, 3, 1 << 20, 0xB, 0), (3400, "RtsSent", 1, 3, 1 << 20),
    (5300, "CtsArrived", 1, 3, 1 << 20), (5600, "WritePosted", 1, 3, 1 << 20),
    (90000, "WriteDone", 1, 3, 0), (90100, "SendDone", 1, 3, 0, 0xB, 0),
    (91000, "SendPosted", 1, 4, 1 << 20), (91100, "RtsSent", 1, 4, 1 << 20),
    (92000, "PeerFailed", 1, 0, 8), (92100, "SendDone", 1, 4, 8),
]
RECEIVER = [
    (1400, "ReceivePosted", 1, 0, 7),
    (2200, "MessageArrived", 0, 1, 64), (2250, "Matched", 0, 1, 7), (2300, "ReceiveDone", 0, 1, 0),
    (2500, "MessageArrived", 0, 2, 4096), (2550, "Unexpected", 0, 2, 4096),
    (3900, "MessageArrived", 0, 3, 1 << 20), (3950, "Matched", 0, 3, 9), (4000, "CtsSent", 0, 3, 1 << 20),
    (4100, "Matched", 0, 2, 8), (4200, "ReceiveDone", 0, 2, 0),
    (4300, "CreditSent", 0, 0, 4096),
    (91000, "ReceiveDone", 0, 3, 0),
]

SENDING_CLIENT = [
    (1450, "SendGiven", 1, 300, 64, 0xA, 0), (2950, "SendGiven", 1, 500, 1 << 20, 0xB, 1),
    (3500, "Sleep", 0, 0, 0), (5200, "Wake", 0, 0, 0),
    (90300, "SendTaken", 0, 0, 0, 0xB, 0),
]


class TraceCommands(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.prefix = os.path.join(self.directory.name, "run")

    def put(self, rank, contents, side=""):
        path = f"{self.prefix}.{rank}{side}.ch3trace"
        with open(path, "wb") as file:
            file.write(contents)
        return path

    def put_pair(self):
        self.put(0, trace_file(0, 2, SENDER))
        self.put(1, trace_file(1, 2, RECEIVER))

    def put_all(self):
        self.put_pair()
        self.put(0, trace_file(0, 2, SENDING_CLIENT, client=True), ".client")
        self.put(1, trace_file(1, 2, [], client=True), ".client")

    def run_program(self, *arguments, locale="C.UTF-8"):
        environment = dict(os.environ, LC_ALL=locale)
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env=environment, timeout=60,
                              encoding="utf-8")

    def good(self, *arguments, **keywords):
        done = self.run_program(*arguments, **keywords)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def to_json(self, *inputs):
        path = os.path.join(self.directory.name, "out.json")
        self.good("json", "-o", path, *inputs)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_json_spans_nest_and_do_not_overlap(self):
        self.put_all()
        lanes = {}
        for event in self.to_json(self.prefix)["traceEvents"]:
            if event["ph"] == "X":
                lanes.setdefault((event["pid"], event["tid"]), []).append(event)
        self.assertGreater(len(lanes), 3)
        for spans in lanes.values():
            open_spans = []
            for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
                while open_spans and open_spans[-1]["ts"] + open_spans[-1]["dur"] <= span["ts"]:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(span["ts"] + span["dur"], open_spans[-1]["ts"] + open_spans[-1]["dur"] + 1e-6)
                    self.assertEqual(span["cat"], "phase", "messages must not overlap on a lane")
                open_spans.append(span)

    def test_json_arrows_start_and_end_inside_spans(self):
        self.put_all()
        events = self.to_json(self.prefix)["traceEvents"]
        starts = {e["id"]: e for e in events if e["ph"] == "s"}
        ends = {e["id"]: e for e in events if e["ph"] == "f"}
        self.assertEqual(starts.keys(), ends.keys())
        self.assertEqual(set(starts), {"0:1:1 command", "0:1:3 command", "0:1:1 message", "0:1:2 message", "0:1:3 message", "0:1:3 clear-to-send",
                                       "0:1:3 payload"})
        for identity, start in starts.items():
            self.assertLessEqual(start["ts"], ends[identity]["ts"])
            for end in (start, ends[identity]):
                self.assertTrue(any(e["ph"] == "X" and (e["pid"], e["tid"]) == (end["pid"], end["tid"])
                                    and e["ts"] <= end["ts"] <= e["ts"] + e["dur"] + 1e-6 for e in events), end)

    def test_json_shows_what_the_client_gave_and_took(self):
        self.put_all()
        events = self.to_json(self.prefix)["traceEvents"]
        sends = [e for e in events if e.get("cat") == "command" and e["ph"] == "X"]
        self.assertEqual([(e["name"], e["ts"], e["dur"], e["args"]["outcome"]) for e in sends],
                         [("SendGiven", 1.45, 0.3, "done at once"), ("SendGiven", 2.95, 0.5, "pending")])
        self.assertEqual(sends[1]["args"]["message"], "0:1:3")
        self.assertEqual((sends[1]["args"]["command_wait_us"], sends[1]["args"]["event_wait_us"]), (0.05, 0.2))
        self.assertEqual([e["ts"] for e in events if e["name"] == "SendTaken"], [90.3])

    def test_json_names_ranks_and_marks_the_rest(self):
        self.put_all()
        result = self.to_json(self.prefix)
        events = result["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(names, {1: "rank 0 (node1, pid 4242)", 2: "rank 1 (node1, pid 4243)"})
        self.assertEqual([e["dur"] for e in events if e["name"] == "asleep"], [1.7])
        self.assertEqual([(e["pid"], e["s"]) for e in events if e["name"] == "PeerFailed"], [(1, "p")])
        levels = [e["args"]["messages"] for e in events if e["name"] == "unexpected messages"]
        self.assertEqual(levels, [1, 0])
        self.assertEqual(result["otherData"]["notes"], [])

    def test_json_says_what_is_missing(self):
        self.put(0, trace_file(0, 3, SENDER, lost=99))
        notes = self.to_json(self.prefix)["otherData"]["notes"]
        self.assertEqual(len(notes), 2)
        self.assertIn("no trace of 2 of 3 ranks (1-2)", notes[0])
        self.assertIn("99 events were overwritten", notes[1])

    def test_json_goes_to_standard_output_by_default(self):
        self.put_pair()
        self.assertEqual(json.loads(self.good("json", self.prefix))["otherData"]["job_size"], 2)

    def test_json_to_a_full_disk_fails(self):
        self.put_pair()
        done = self.run_program("json", "-o", "/dev/full", self.prefix)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full: No space left on device", done.stderr)

    def test_show_draws_a_tree(self):
        self.put_pair()
        tree = self.good("show", "--message", "0:1:3", self.prefix)
        self.assertIn("message 0:1:3  rendezvous write, 1.0 MiB, expected, 88.000 us", tree)
        self.assertIn("├── rank 0 on node1 sends", tree)
        self.assertIn("1.300 after CtsSent", tree)
        self.assertIn("context 0 source 0 tag 9", tree)
        self.assertNotIn("SendGiven", tree)
        self.put_all()
        both = self.good("show", "--message", "0:1:3", self.prefix)
        self.assertIn("-0.050              SendGiven        1048576 bytes, pending", both)
        self.assertIn("0.050 after SendGiven", both)
        self.assertIn("0.200 after SendDone", both)
        plain = self.good("show", "--message", "0:1:3", self.prefix, locale="C")
        self.assertTrue(plain.isascii())
        self.assertEqual(plain, self.good("show", "--ascii", "--message", "0:1:3", self.prefix))

    def test_show_names_failures_and_gaps(self):
        self.put_pair()
        self.assertIn("failed, incomplete: send failed", self.good("show", "--message", "0:1:4", self.prefix))
        os.remove(f"{self.prefix}.1.ch3trace")
        tree = self.good("show", "--message", "0:1:1", self.prefix)
        self.assertIn("note: no trace of 1 of 2 ranks (1)", tree)
        self.assertIn("rank 1 receives: no trace of it", tree)

    def test_show_lists(self):
        self.put_pair()
        lines = self.good("show", "--list", self.prefix).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["message", "0:1:1", "0:1:2", "0:1:3", "0:1:4"])
        slow = self.good("show", "--slowest", "2", self.prefix)
        self.assertEqual([line.split()[1] for line in slow.splitlines() if line.startswith("message")],
                         ["0:1:3", "0:1:2"])

    def test_show_of_an_unknown_message_says_which_there_are(self):
        self.put_pair()
        done = self.run_program("show", "--message", "0:1:9", self.prefix)
        self.assertEqual(done.returncode, 1)
        self.assertIn("numbers 1 to 4 of that pair", done.stderr)
        self.assertIn("no message from 1 to 0", self.run_program("show", "--message", "1:0:9", self.prefix).stderr)
        self.assertIn("the job has 2 ranks", self.run_program("show", "--message", "0:2:9", self.prefix).stderr)

    def test_summary(self):
        self.put_all()
        text = self.good("summary", self.prefix)
        self.assertRegex(text, r"0 -> 1 +4 +2\.0 MiB +2\.200 +88\.000 +33\.3 % +1 +1\n")
        self.assertRegex(text, r"short +2 +4\.1 KiB +0\.800 +2\.200 +50\.0 % +- +-\n")
        self.assertRegex(text, r"\n +0  node1 +20 +0 +1 +1\.700 +0 +0 +1\n")
        self.assertRegex(text, r"\n +0 +2 +1 +- +- +0\.050 +0\.050 +0\.200 +0\.200\n")

    def test_command_lines_that_make_no_sense(self):
        self.put_pair()
        for arguments in ([], ["draw"], ["json"], ["show", self.prefix], ["show", "--list", "--slowest", "1", self.prefix],
                          ["show", "--message", "0:1", self.prefix], ["show", "--slowest", "x", self.prefix]):
            done = self.run_program(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(done.stderr, arguments)
        for option, least, command in (("--slowest", 1, "show"), ("--pairs", 0, "summary")):
            for value in ("x", "-1", "1.5", "99999999999999999999", *(["0"] if least else [])):
                done = self.run_program(command, f"{option}={value}", self.prefix)
                self.assertEqual((done.returncode, done.stdout), (2, ""), value)
                self.assertIn(f"{option}: takes a whole number from {least} on, not '{value}'\n", done.stderr)
        self.assertIn("summary", self.good("--help"))

    def test_files_that_cannot_be_used(self):
        self.put_pair()
        path = self.put(1, trace_file(1, 2, RECEIVER)[:-1])
        done = self.run_program("summary", self.prefix)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{path}: offset 32: the header counts 13 records", done.stderr)
        for name in ("missing", "/dev/null", self.directory.name):
            done = self.run_program("summary", name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(name, done.stderr)
        done = self.run_program("summary", f"{self.prefix}.0.ch3trace", f"{self.prefix}.0.ch3trace")
        self.assertIn("both of rank 0", done.stderr)

    def test_wild_but_valid_records_do_no_harm(self):
        chance = random.Random(1)
        for _ in range(5):
            for rank in range(3):
                times = sorted(chance.randrange(1 << 40) for _ in range(200))
                self.put(rank, trace_file(rank, 3, [
                    (time, chance.choice(ENGINE_NAMES), chance.randrange(3),
                     chance.choice([0, 1, 2, 3, (1 << 64) - 1]),
                     chance.choice([0, 1, 255, 256, (1 << 63), (1 << 64) - 1]), chance.randrange(4), 0)
                    for time in times],
                    node=chance.randrange(2), lost=chance.choice([0, 7])))
                self.put(rank, trace_file(rank, 3, [
                    (time, chance.choice(CLIENT_NAMES), chance.randrange(3), chance.randrange(1000),
                     chance.choice([0, 1, 255, 256, (1 << 63), (1 << 64) - 1]), chance.randrange(4), 0)
                    for time in times],
                    node=chance.randrange(2), lost=chance.choice([0, 7]), client=True), ".client")
            self.to_json(self.prefix)
            self.good("summary", self.prefix)
            self.good("show", "--list", self.prefix)
            self.good("show", "--slowest", "1000", self.prefix)


if __name__ == "__main__":
    unittest.main()
