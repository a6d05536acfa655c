"""AttentionService on a real port, with both clients and the command."""

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from triptych_cli.encoders.attend import command
from triptych_client import AsyncClient, Client, FailedPreconditionError, NotFoundError

from ..fixtures.encoders import write_image_bundle
from ..fixtures.half import HALF_BUNDLE
from ..fixtures.toy import SOURCE, TARGET, copy_models
from .support.in_process import options_of, serving
from .support.messages import RED


def test_attend(tmp_path: Path) -> None:
    copy_models(tmp_path)
    shutil.copytree(HALF_BUNDLE, tmp_path / "old" / "1")
    write_image_bundle(tmp_path)  # without an attention graph, too
    with serving(options_of(tmp_path)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            found = client.attend(SOURCE, model="toy")
            assert (found.target, found.model, found.model_version) == (TARGET, "toy", "1")
            assert found.cross is not None
            assert found.cross.shape[2:] == (len(found.target_tokens), len(found.source_tokens))
            np.testing.assert_allclose(np.asarray(found.cross).sum(-1), 1, atol=1e-5)
            assert client.attend("Nobody", text_pair="sees nothing.").model == "toy-bert"
            image = client.attend(image=RED)
            assert (image.model, image.patch_rows > 1, image.cross) == ("toy-vit", True, None)
            with pytest.raises(FailedPreconditionError, match="has no attention graph"):
                client.attend(SOURCE, model="old")
            assert client.attend(SOURCE).model == "toy"  # the only one with a graph
            with pytest.raises(NotFoundError, match="no model translates any language to fr"):
                client.attend(SOURCE, target_language="fr")

        async def attend() -> tuple[int, ...]:
            async with AsyncClient(address) as client:
                return (await client.attend(SOURCE, target="Nichts.", model="toy")).encoder.shape

        assert asyncio.run(attend()) == found.encoder.shape
        remote = CliRunner().invoke(command, [SOURCE, "--json", "--model", "toy", "--server", address])
        local = CliRunner().invoke(command, [SOURCE, "--json", "--models", str(tmp_path), "--model", "toy"])
        assert json.loads(remote.output) == json.loads(local.output)
        (tmp_path / "red.png").write_bytes(RED)
        comment = "<!--<script>"  # would take in the rest of the page
        inputs = [[SOURCE, "--target", comment, "--model", "toy"], ["Nobody", "--model", "toy-bert"]]
        inputs.append(["--image", str(tmp_path / "red.png")])
        for arguments in inputs:
            page, picture = tmp_path / "page.html", tmp_path / "picture.png"
            files = ["--html", str(page), "--png", str(picture), "--server", address]
            done = CliRunner().invoke(command, [*arguments, *files])
            assert (done.exit_code, done.output) == (0, "")
            assert "default-src 'none'" in page.read_text()
            assert comment not in page.read_text()
            with Image.open(picture) as image:
                assert image.getextrema() != ((255, 255),) * 3
