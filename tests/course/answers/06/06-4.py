"""Wrong and right answers to exercise 06-4."""

SETUP = """
def average_bucket(parameters):
    gradients = [p.grad for p in parameters]
    bucket = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(bucket)
    bucket /= world_size
    for g, piece in zip(gradients, bucket.split([g.numel() for g in gradients])):
        g.copy_(piece.view_as(g))
"""

WRONG = {
    "sends an empty bucket": (
        """
def average_in_buckets(net, cap):
    bucket, size = [], 0
    for p in reversed(list(net.parameters())):
        if size + p.numel() > cap:
            average_bucket(bucket)
            bucket, size = [], 0
        bucket.append(p)
        size += p.numel()
    average_bucket(bucket)
""",
        "An empty bucket was sent",
    ),
    "forgets the last bucket": (
        """
def average_in_buckets(net, cap):
    bucket, size = [], 0
    for p in reversed(list(net.parameters())):
        if bucket and size + p.numel() > cap:
            average_bucket(bucket)
            bucket, size = [], 0
        bucket.append(p)
        size += p.numel()
""",
        "What is in the bucket when the loop ends is never sent",
    ),
    "from the front": (
        """
def average_in_buckets(net, cap):
    bucket, size = [], 0
    for p in net.parameters():
        if bucket and size + p.numel() > cap:
            average_bucket(bucket)
            bucket, size = [], 0
        bucket.append(p)
        size += p.numel()
    average_bucket(bucket)
""",
        "These buckets are filled from the first parameter on",
    ),
    "less than the cap": (
        """
def average_in_buckets(net, cap):
    bucket, size = [], 0
    for p in reversed(list(net.parameters())):
        if bucket and size + p.numel() >= cap:
            average_bucket(bucket)
            bucket, size = [], 0
        bucket.append(p)
        size += p.numel()
    average_bucket(bucket)
""",
        "A bucket may hold exactly cap numbers",
    ),
    "one for each": (
        """
def average_in_buckets(net, cap):
    for p in reversed(list(net.parameters())):
        average_bucket([p])
""",
        "Every parameter has a bucket of its own",
    ),
    "asks too late": (
        """
def average_in_buckets(net, cap):
    bucket = []
    for p in reversed(list(net.parameters())):
        bucket.append(p)
        if sum(q.numel() for q in bucket) >= cap:
            average_bucket(bucket)
            bucket = []
    if bucket:
        average_bucket(bucket)
""",
        "A bucket of several parameters holds more than cap numbers",
    ),
    "one for all": (
        """
def average_in_buckets(net, cap):
    average_bucket(reversed(list(net.parameters())))
""",
        "A bucket of several parameters holds more than cap numbers",
    ),
}

ANOTHER = """
def average_in_buckets(net, cap):
    buckets = [[]]
    for p in list(net.parameters())[::-1]:
        held = sum(q.numel() for q in buckets[-1])
        if held and held + p.numel() > cap:
            buckets.append([])
        buckets[-1].append(p)
    for bucket in buckets:
        average_bucket(bucket)
"""
