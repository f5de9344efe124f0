"""Writes testdata/wav: small WAV files of every kind that is read, and samples.json, what the reader of Needle's package (3.2.8, see the Makefile) makes of
them.
"""

import json
import math
import struct
from pathlib import Path

import numpy as np
from needle.agent import whistle

OUT = Path(__file__).resolve().parent.parent / "testdata" / "wav"
FRAMES = 24
GUID = bytes.fromhex("000000001000800000aa00389b71")


def wave(k, channel):
    return 0.9 * math.sin(0.7 * k + channel) * (1 - k / (2 * FRAMES))


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def write(name, tag, bits, channels, rate, extensible=False, extra=b""):
    raw = b""
    for k in range(FRAMES):
        for c in range(channels):
            x = wave(k, c)
            if tag == 3:
                raw += struct.pack("<f" if bits == 32 else "<d", x)
            elif bits == 8:
                raw += struct.pack("<B", round(128 + 127 * x))
            else:
                raw += round(x * ((1 << (bits - 1)) - 1)).to_bytes(bits // 8, "little", signed=True)
    align = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else tag, channels, rate, rate * align, align, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 0, tag) + GUID
    body = b"WAVE" + chunk(b"fmt ", fmt) + extra + chunk(b"data", raw)
    (OUT / name).write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)


def main():
    OUT.mkdir(exist_ok=True)
    write("u8.wav", 1, 8, 1, 16000)
    write("s16-stereo.wav", 1, 16, 2, 16000, extra=chunk(b"LIST", b"INFOISFT\x05\0\0\0none\0\0"))
    write("s24.wav", 1, 24, 1, 16000)
    write("s32-three.wav", 1, 32, 3, 16000)
    write("f32-stereo.wav", 3, 32, 2, 16000)
    write("f64-extensible.wav", 3, 64, 1, 16000, extensible=True)
    write("s16-extensible.wav", 1, 16, 1, 16000, extensible=True)
    found = {}
    for path in sorted(OUT.glob("*.wav")):
        found[path.name] = [int(v) for v in np.asarray(whistle._read_wav(str(path)), np.float32).view(np.uint32)]
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()]
    (OUT / "samples.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
