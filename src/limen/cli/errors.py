"""A user's mistake gets a sentence, never a stack trace."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor

from limen.datasets import DatasetError
from limen.experiment.config import ConfigError
from limen.experiment.files import RunFolderError
from limen.storage import ModelFileError
from limen.web.settings import ServerError


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what the user can mend into a message and exit code 1."""
    try:
        yield
    except (DatasetError, ConfigError, RunFolderError, ModelFileError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenExecutor as error:
        print(
            "error: a worker process was killed, perhaps for lack of memory: try fewer --jobs. "
            f"What is finished is kept; the same command goes on. ({str(error).splitlines()[0]})",
            file=sys.stderr,
        )
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        sys.stderr.close()
        sys.exit(0)
