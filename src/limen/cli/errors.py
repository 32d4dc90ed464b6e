"""A user's mistake gets a sentence, never a stack trace."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from limen.datasets import DatasetError
from limen.experiment.config import ConfigError
from limen.experiment.files import RunFolderError


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what the user can mend into a message and exit code 1."""
    try:
        yield
    except (DatasetError, ConfigError, RunFolderError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        sys.stderr.close()
        sys.exit(0)
