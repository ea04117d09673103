"""Parse the local rank as scripts did before PyTorch 2.0; a new one takes both spellings:

parser.add_argument("--local-rank", "--local_rank", type=int)
"""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
print("local rank:", parser.parse_args().local_rank)
