"""The variables by which a program finds its volumes."""

from __future__ import annotations

from ciao_kernel.delivery.volume_variables import variables
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.model import JobSpec, Source, SourceFile


def of(volumes: str, *inputs: str, files: tuple[str, ...] = ()) -> dict[str, str]:
    spec = JobSpec("tensorflow", volumes=Volumes().parse(volumes) if volumes else (), inputs=inputs)
    delivered = tuple(SourceFile(path, b"") for path in files)
    return variables(spec, "/ciao/work", Source(SourceFile("cell.py", b""), files=delivered))


def test_each_volume_with_data_is_a_channel() -> None:
    assert of("a/2024:input/train:ro nfs://host/b:data/my-books c:/data/c tmp:1Gi:scratch") == {
        "CIAO_INPUT": "/ciao/work/input",
        "SM_CHANNEL_TRAIN": "/ciao/work/input/train",
        "SM_CHANNEL_MY_BOOKS": "/ciao/work/data/my-books",
        "SM_CHANNEL_C": "/data/c",
    }


def test_of_two_with_one_name_the_first_counts() -> None:
    assert of("a:x/train b:y/train") == {"SM_CHANNEL_TRAIN": "/ciao/work/x/train"}


def test_the_folder_of_input_is_named_if_there_is_one() -> None:
    assert of("tmp:input") == of("", "table") == {"CIAO_INPUT": "/ciao/work/input"}
    assert of("", files=("input/a/train.csv",)) == {"CIAO_INPUT": "/ciao/work/input"}
    assert of("") == of("memory:1Gi:inputs") == of("", files=("input", "data/input/a")) == {}
