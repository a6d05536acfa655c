"""Image folders: reading, holding out, decoding."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from triptych_training.data.images import ImageStore, LabelledImage, check_images, decode, hold_out, read_folders
from triptych_training.errors import CorpusError

from ..toy_pictures import COLOURS, write_picture, write_pictures


def store(pictures: list[LabelledImage], cache_bytes: float, size: int = 8) -> ImageStore:
    return ImageStore(pictures, size, cache_bytes, threads=2)


def test_classes_are_sorted_by_name_unless_they_are_known(tmp_path: Path) -> None:
    pictures, classes = read_folders([write_pictures(tmp_path, each=2)])
    assert classes == sorted(COLOURS)
    names = [picture.path.relative_to(tmp_path).as_posix() for picture in pictures]
    assert names == [f"{name}/{number:02d}.png" for name in classes for number in range(2)]
    assert [picture.label for picture in pictures] == [0, 0, 1, 1, 2, 2]
    pictures, classes = read_folders([write_pictures(tmp_path / "known", each=1)], ["red", "green", "blue", "grey"])
    assert classes == ["red", "green", "blue", "grey"]
    assert [(p.path.parent.name, p.label) for p in pictures] == [("red", 0), ("green", 1), ("blue", 2)]


def test_several_roots_share_their_classes_and_other_files_are_ignored(tmp_path: Path) -> None:
    roots = [write_pictures(tmp_path / name, each=1) for name in "ab"]
    (tmp_path / "a/red/notes.txt").write_text("no image")
    (tmp_path / "a/README.md").write_text("no class")
    write_picture(tmp_path / "b/grey/0.PNG", (90, 90, 90))
    write_picture(tmp_path / "b/.ipynb_checkpoints/0.png", (90, 90, 90))
    (tmp_path / "a/red/._0.png").write_bytes(b"of macOS, no image")
    pictures, classes = read_folders(roots)
    assert classes == ["blue", "green", "grey", "red"]
    assert [picture.label for picture in pictures] == [0, 0, 1, 1, 2, 3, 3]


def test_an_invalid_image_folder_is_named(tmp_path: Path) -> None:
    root = write_pictures(tmp_path / "good", each=1)
    (tmp_path / "one/red").mkdir(parents=True)
    with pytest.raises(CorpusError, match=f"{tmp_path}/none: no such folder"):
        read_folders([root, str(tmp_path / "none")])
    with pytest.raises(CorpusError, match="one: folders of images inside: 1, expected at least 2"):
        read_folders([str(tmp_path / "one")])
    with pytest.raises(CorpusError, match=r"one/red: contains no images \(.jpeg, .jpg, .png, .webp\)"):
        read_folders([root, str(tmp_path / "one")])
    (tmp_path / "one/caf\udce9").mkdir()
    with pytest.raises(CorpusError, match=r"one/caf\\xe9': the name of this class is not UTF-8; rename the folder"):
        read_folders([root, str(tmp_path / "one")])
    with pytest.raises(CorpusError, match="good: blue, red: not among the classes of the training set"):
        read_folders([root], ["green", "grey"])


def test_the_last_images_of_every_class_are_held_out(tmp_path: Path) -> None:
    pictures, _ = read_folders([write_pictures(tmp_path, each=5)])
    kept, held_out = hold_out(pictures, 6)
    assert hold_out(pictures, 6) == hold_out(pictures, 0.4) == (kept, held_out)
    assert [p.label for p in held_out] == [0, 0, 1, 1, 2, 2]
    assert [p.path.stem for p in held_out] == ["03", "04"] * 3
    assert {p.path for p in kept} | {p.path for p in held_out} == {p.path for p in pictures}
    assert not {p.path for p in kept} & {p.path for p in held_out}
    assert len(hold_out(pictures, 1)[1]) == 3  # at least one of each class
    with pytest.raises(CorpusError, match=r"hold_out: all images of the class blue \(5\) would be held out; lower hold_out"):
        hold_out(pictures, 15)
    with pytest.raises(CorpusError, match=r"hold_out: all images of the class blue \(5\) would be held out; lower hold_out"):
        hold_out(pictures, math.inf)


def test_every_class_gives_the_same_share_of_its_images_and_at_least_one(tmp_path: Path) -> None:
    for name, count in (("common", 20), ("rare", 3), ("usual", 10)):
        for number in range(count):
            write_picture(tmp_path / name / f"{number:02d}.png", (90, 90, 90))
    pictures, _ = read_folders([str(tmp_path)])
    held_out = hold_out(pictures, 0.2)[1]
    assert [(p.path.parent.name, p.path.stem) for p in held_out] == [
        *(("common", f"{number}") for number in range(16, 20)),
        ("rare", "02"),
        *(("usual", f"{number:02d}") for number in range(8, 10)),
    ]


def test_a_folder_that_is_named_twice_is_not_trained_on_where_it_is_held_out(tmp_path: Path) -> None:
    root = write_pictures(tmp_path / "root", each=5)
    (tmp_path / "again").symlink_to(root)
    once, _ = read_folders([root])
    pictures, _ = read_folders([root, str(tmp_path / "again"), root])
    kept, held_out = hold_out(pictures, 0.4)
    assert [p.path.samefile(q.path) for p, q in zip(held_out, hold_out(once, 0.4)[1], strict=True)] == [True] * 6
    assert len(kept) == 3 * 9
    assert not {p.path.resolve() for p in kept} & {p.path.resolve() for p in held_out}
    with pytest.raises(CorpusError, match=r"hold_out: all images of the class blue \(5\) would be held out; lower hold_out"):
        hold_out(pictures, 15)


def test_files_that_are_no_images_are_found_before_the_training(tmp_path: Path) -> None:
    pictures, _ = read_folders([write_pictures(tmp_path, each=2)])
    check_images(pictures, threads=2)
    Image.open(pictures[2].path).save(pictures[2].path, "TIFF")
    problem = f"{pictures[2].path}: cannot be used as an image: not JPEG, PNG, WEBP, or damaged"
    with pytest.raises(CorpusError, match=rf"^{problem}$"):
        check_images(pictures, threads=2)
    pictures[4].path.write_bytes(b"")
    with pytest.raises(CorpusError, match=rf"^{problem}; 1 more files cannot$"):
        check_images(pictures, threads=2)


def test_cached_and_decoded_pixels_are_equal_and_a_damaged_image_is_named(tmp_path: Path) -> None:
    pictures, _ = read_folders([write_pictures(tmp_path, each=2)])
    kept, fresh = store(pictures, 6 * 8 * 8 * 3), store(pictures, 6 * 8 * 8 * 3 - 1)
    for indices in ([4, 0, 4], [5, 4, 1]):
        pixels = kept.load(indices)
        assert pixels.shape == (3, 8, 8, 3)
        np.testing.assert_array_equal(pixels, fresh.load(indices))
        np.testing.assert_array_equal(pixels[0], np.asarray(Image.open(pictures[indices[0]].path)))
    assert kept.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(kept) == 6
    pictures[3].path.write_bytes(pictures[3].path.read_bytes()[:60])
    for images in (kept, fresh):
        with pytest.raises(CorpusError, match=f"{pictures[3].path}: cannot be used as an image: "):
            images.load([0, 3])
    for picture in pictures:
        picture.path.unlink()
    np.testing.assert_array_equal(kept.load([5, 4, 1]), pixels)
    with pytest.raises(CorpusError):
        fresh.load([5])


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 8, 4))  # the upper half
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees, clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    pixels = decode(tmp_path / "turned.png", 8)
    assert (int(pixels[:, 4:].min()), int(pixels[:, :4].max())) == (255, 0)


def test_16_bit_greyscale_keeps_its_high_byte_as_in_serving(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 0x4080, np.uint16)).save(tmp_path / "deep.png")
    assert np.unique(decode(tmp_path / "deep.png", 8)).tolist() == [0x40]


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_images_of_every_mode_become_rgb_of_one_size(tmp_path: Path, mode: str) -> None:
    path = tmp_path / f"a.{'jpg' if mode == 'CMYK' else 'png'}"
    Image.new("RGB", (20, 10), (128, 128, 128)).convert(mode).save(path)
    pixels = decode(path, 8)
    assert pixels.shape == (8, 8, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - 128).max() <= 8
