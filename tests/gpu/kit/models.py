"""Stage 3: the jobs that 4paradigm's benchmark has, each native, twice at once without Divvy, and twice at once at 50/50 under it."""
import costs
import shares

# Name, training and inference; the loops themselves are in work.py, by the same names.
JOBS = ["resnet50-i", "resnet50-t", "resnet152-i", "resnet152-t", "vgg16-i", "vgg16-t", "deeplab-i", "deeplab-t", "lstm-i", "lstm-t"]


def run(book, deadline, only):
    stage = shares.Stage(book, deadline, only)
    try:
        for job in JOBS:
            stage.native(job, 3)
            stage.unmanaged([job, job], 4)
            stage.shared([(job, 500, 1000), (job, 500, 1000)], 5)
        # Programs of several streams that fill the card are to have their parts like any others.
        stage.shared([("lstm-i", 300, 1000), ("lstm-i", 700, 1000)], 8)
        # Side by side two of these are as fast as they can be, and to hold 70 for one the other must wait: the sum is only told.
        stage.shared([("lstm-t", 300, 1000), ("lstm-t", 700, 1000)], 8, sum_asked=False)
        costs.overhead(stage, "lstm-i")
        # Beside a program of one stream, which keeps a queue, they have turns.
        stage.native("mm", 3)
        for job in ("lstm-i", "lstm-t"):
            stage.unmanaged([job, "mm"], 4)
            stage.shared([(job, 500, 1000), ("mm", 500, 1000)], 8)
            stage.shared([(job, 700, 1000), ("mm", 300, 1000)], 8)
        # Both bound by submitting, one in several streams and one that mostly thinks.
        stage.native("small", 3)
        stage.unmanaged(["lstm-t", "small"], 4)
        stage.shared([("lstm-t", 500, 1000), ("small", 500, 1000)], 8)
        stage.shared([("lstm-t", 700, 1000), ("small", 300, 1000)], 8)
        stage.shared([("lstm-t", 300, 1000), ("small", 700, 1000)], 8)
        shares.rest(stage)
    finally:
        stage.end()
