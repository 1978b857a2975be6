"""Puts folders on the Hugging Face hub."""

import os

import huggingface_hub

from vit_jax.runtime import errors
from vit_jax.runtime import hub_errors


def push(
  folder: os.PathLike,
  repository: str,
  *,
  revision: str | None = None,
  private: bool = False,
  message: str = 'Upload a model of vit_jax',
) -> str:
  """Uploads the files of a folder in one commit; returns its address.

  `huggingface_hub` reads the token and the mirror from the environment, HF_TOKEN and
  HF_ENDPOINT, or from what `hf auth login` has stored.

  Args:
    folder: what to upload.
    repository: USER/NAME; made if there is none.
    revision: branch; made if there is none. None for the main one.
    private: whether a new repository is for its owner alone.
    message: message of the commit.

  Raises:
    errors.UserError: if the hub refuses, or cannot be reached.
  """
  api = huggingface_hub.HfApi()
  try:
    api.create_repo(repository, private=private, exist_ok=True)
    if revision:
      api.create_branch(repository, branch=revision, exist_ok=True)
    done = api.upload_folder(
      repo_id=repository,
      folder_path=os.fspath(folder),
      revision=revision,
      commit_message=message,
    )
  except Exception as e:  # Its HTTP client has errors of its own.
    reason = hub_errors.explain(e, repository, writes=True)
    raise errors.UserError(f'{repository} cannot be pushed: {reason}') from e
  return str(done)
