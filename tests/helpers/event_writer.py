"""The text of a program that writes TensorBoard's event files, by the standard library alone.

The tests' images have no TensorBoard, and its own writer imports TensorFlow where there is one. A
record of such a file is its length, its data, and a masked CRC-32C of each; the data is a message
``Event`` (tensorflow/core/util/event.proto).
"""

from __future__ import annotations

WRITER = """
import os, struct, time

def _crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

def _field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data

class Events:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.host.{os.getpid()}.0"
        self.file = open(os.path.join(folder, name), "ab", buffering=0)
        self._write(_field(3, b"brain.Event:2"))

    def scalar(self, tag, value, step):
        number = _field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
        self._write(bytes([2 << 3, step]) + _field(5, _field(1, number)))

    def _write(self, rest):
        data = bytes([1 << 3 | 1]) + struct.pack("<d", time.time()) + rest
        size = struct.pack("<Q", len(data))
        self.file.write(size + _crc(size) + data + _crc(data))
"""
