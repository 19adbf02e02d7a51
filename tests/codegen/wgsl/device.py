"""Runs WGSL kernels by wgpu, as a process of an environment that has it: requests are read from
standard input, replies are written to standard output, both pickled."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import wgpu


def main() -> None:
    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    reply(adapters[0].summary if adapters else "")
    if not adapters:
        return
    # Without wishes, a device has the limits that every one of WebGPU has.
    device = adapters[0].request_device_sync()
    modules: dict[str, Any] = {}
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            code = request.pop("code")
            if code not in modules:
                modules[code] = device.create_shader_module(code=code)
            reply(run(device, modules[code], **request) if request else [])
        except Exception:  # whatever it is, `Device.ask` fails with it
            reply(traceback.format_exc())


def reply(value: Any) -> None:
    pickle.dump(value, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def run(
    device: Any, module: Any, entry: str, grid: Sequence[int],
    buffers: Sequence[tuple[str, bytes]],
) -> list[bytes]:  # fmt: skip
    """Launch an entry point on buffers, each with the kind of its binding; return their bytes."""
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    held: list[Any] = []
    for kind, data in buffers:
        wanted = wgpu.BufferUsage.UNIFORM if kind == "uniform" else usage
        held.append(device.create_buffer_with_data(data=data or bytes(4), usage=wanted))
    visible = wgpu.ShaderStage.COMPUTE
    layout = device.create_bind_group_layout(entries=[
        {"binding": i, "visibility": visible, "buffer": {"type": kind}}
        for i, (kind, _) in enumerate(buffers)
    ])  # fmt: skip
    group = device.create_bind_group(layout=layout, entries=[
        {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
        for i, b in enumerate(held)
    ])  # fmt: skip
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={"module": module, "entry_point": entry},
    )
    encoder = device.create_command_encoder()
    launch = encoder.begin_compute_pass()
    launch.set_pipeline(pipeline)
    launch.set_bind_group(0, group)
    launch.dispatch_workgroups(*grid)
    launch.end()
    device.queue.submit([encoder.finish()])
    return [
        b"" if kind == "uniform" else bytes(device.queue.read_buffer(b))[: len(data)]
        for b, (kind, data) in zip(held, buffers, strict=True)
    ]


if __name__ == "__main__":
    main()
