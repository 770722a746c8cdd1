# SPDX-License-Identifier: Apache-2.0
"""CUDA's own libdevice, compiled for this processor: a second implementation of its float32 functions.

``Libdevice(flushes)`` loads the toolkit's bitcode with llvmlite. NVIDIA's intrinsics are replaced: operations by those of
the host, under the control word that has the same rounding and flushing; questions about the options by their answers;
instructions of the special function unit by calls that write down their argument and read their result. ``run`` therefore
runs a function several times, and computes the results of a unit for all elements between two runs.
"""

import ctypes
import pathlib
import re
import shutil

import numpy as np

#: The control word of SSE: all exceptions masked; rounding down and toward zero; what flushes results and arguments.
DEFAULT, DOWN, TOWARD_ZERO, FLUSHES = 0x1F80, 0x2000, 0x6000, 0x8040

UNITS = ("rcp", "rsqrt", "sqrt", "lg2", "ex2")
SLOTS = 3
"""No function asks units more often."""

PRELUDE = """
@fp8lab_arguments = global ptr null
@fp8lab_kinds = global ptr null
@fp8lab_answers = global ptr null
@fp8lab_known = global i64 0
@fp8lab_used = global i64 0
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.fabs.f32(float)
declare float @llvm.trunc.f32(float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.roundeven.f32(float)
declare float @llvm.copysign.f32(float, float)
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)

; Asks a unit: kind 2 i of UNITS[i], one more with .ftz.
define float @fp8lab_unit(i32 %kind, float %x) noinline {
  %slot = load i64, ptr @fp8lab_used
  %next = add i64 %slot, 1
  store i64 %next, ptr @fp8lab_used
  %arguments = load ptr, ptr @fp8lab_arguments
  %argument = getelementptr float, ptr %arguments, i64 %slot
  store float %x, ptr %argument
  %kinds = load ptr, ptr @fp8lab_kinds
  %kind_at = getelementptr i32, ptr %kinds, i64 %slot
  store i32 %kind, ptr %kind_at
  %known = load i64, ptr @fp8lab_known
  %is_known = icmp ult i64 %slot, %known
  br i1 %is_known, label %told, label %open
told:
  %answers = load ptr, ptr @fp8lab_answers
  %answer = getelementptr float, ptr %answers, i64 %slot
  %result = load float, ptr %answer
  ret float %result
open:
  ret float 0.0
}
define float @fp8lab_fma_down(float %a, float %b, float %c) noinline {
  %r = call float asm sideeffect "subq $$16, %rsp; stmxcsr (%rsp); movl (%rsp), %eax; orl $$DOWN, %eax; movl %eax, 4(%rsp); ldmxcsr 4(%rsp); vfmadd213ss $3, $2, $0; ldmxcsr (%rsp); addq $$16, %rsp", "=x,0,x,x,~{eax},~{memory},~{flags}"(float %a, float %b, float %c)
  ret float %r
}
define float @fp8lab_add_cut(float %a, float %b) noinline {
  %r = call float asm sideeffect "subq $$16, %rsp; stmxcsr (%rsp); movl (%rsp), %eax; orl $$CUT, %eax; movl %eax, 4(%rsp); ldmxcsr 4(%rsp); vaddss $2, $0, $0; ldmxcsr (%rsp); addq $$16, %rsp", "=x,0,x,~{eax},~{memory},~{flags}"(float %a, float %b)
  ret float %r
}
define float @fp8lab_magnitude(float %x) {
  %y = call float @llvm.fabs.f32(float %x)
  %r = fmul float %y, 1.0
  ret float %r
}
define float @fp8lab_saturate(float %x) {
  %y = fmul float %x, 1.0
  %above = fcmp ogt float %y, 0.0
  %z = select i1 %above, float %y, float 0.0
  %below = fcmp olt float %z, 1.0
  %r = select i1 %below, float %z, float 1.0
  ret float %r
}
define i32 @fp8lab_nearest_integer(float %x) {
  %y = call float @llvm.roundeven.f32(float %x)
  %r = call i32 @llvm.fptosi.sat.i32.f32(float %y)
  ret i32 %r
}
define { i32, i32 } @fp8lab_multiply_add(i32 %a, i32 %b, i32 %c) {
  %a64 = zext i32 %a to i64
  %b64 = zext i32 %b to i64
  %c64 = zext i32 %c to i64
  %p = mul i64 %a64, %b64
  %s = add i64 %p, %c64
  %low = trunc i64 %s to i32
  %shifted = lshr i64 %s, 32
  %high = trunc i64 %shifted to i32
  %r0 = insertvalue { i32, i32 } undef, i32 %low, 0
  %r1 = insertvalue { i32, i32 } %r0, i32 %high, 1
  ret { i32, i32 } %r1
}
""".replace("DOWN", hex(DOWN)).replace("CUT", hex(TOWARD_ZERO))

LOOP = """
define void @run_NAME(ptr %x, ptr %out, i64 %count, i32 %control) noinline {
entry:
  %saved = alloca i32
  %wanted = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  store i32 %control, ptr %wanted
  call void @llvm.x86.sse.ldmxcsr(ptr %wanted)
  %arguments = load ptr, ptr @fp8lab_arguments
  %kinds = load ptr, ptr @fp8lab_kinds
  %answers = load ptr, ptr @fp8lab_answers
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %next ]
  %slots = mul i64 %i, SLOTS
  %own_arguments = getelementptr float, ptr %arguments, i64 %slots
  store ptr %own_arguments, ptr @fp8lab_arguments
  %own_kinds = getelementptr i32, ptr %kinds, i64 %slots
  store ptr %own_kinds, ptr @fp8lab_kinds
  %own_answers = getelementptr float, ptr %answers, i64 %slots
  store ptr %own_answers, ptr @fp8lab_answers
  store i64 0, ptr @fp8lab_used
  %at = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %at
  %result = call float @NAME(float %value)
  %to = getelementptr float, ptr %out, i64 %i
  store float %result, ptr %to
  %after = add i64 %i, 1
  %more = icmp ult i64 %after, %count
  br i1 %more, label %next, label %end
end:
  call void @llvm.x86.sse.ldmxcsr(ptr %saved)
  ret void
}
""".replace("SLOTS", str(SLOTS))


def bitcode():
    """The path of libdevice, beside the nvcc that is found first; None where there is none."""
    nvcc = shutil.which("nvcc")
    roots = [pathlib.Path(nvcc).resolve().parents[1]] if nvcc else []
    roots += sorted(pathlib.Path("/usr/local").glob("cuda*"))
    for root in roots:
        for path in (root / "nvvm").glob("libdevice/libdevice.10.bc"):
            return path
    return None


def is_possible():
    """Whether the bitcode and a processor with the instructions of PRELUDE are here."""
    import llvmlite.binding as llvm

    is_x86 = llvm.get_default_triple().startswith("x86_64")
    return bitcode() is not None and is_x86 and bool(llvm.get_host_cpu_features().get("fma"))


def definitions(text):
    """Each function's name and text."""
    return {found[1]: found[0] for found in re.finditer(r"^define [^@]*@(\w+)\(.*?^}$", text, re.M | re.S)}


def for_the_host(text, flushes):
    """The intrinsics of a function replaced."""
    text = re.sub(
        r"call i32 @__nvvm_reflect\(ptr[^)]*@(\.str[.0-9]*)[^)]*\)",
        lambda found: f"add i32 {1 if found[1] != '.str' else int(flushes)}, 0",
        text,
    )
    text = re.sub(
        r'call float asm "(\w+)\.approx\.ftz\.f32 [^"]*", "=f,f"\(', r"call float @llvm.nvvm.\1.approx.ftz.f(", text
    )
    text = re.sub(
        r'call \{ i32, i32 \} asm "[^"]*mad\.lo\.cc\.u32[^"]*", "=r,=r,r,r,r"\(',
        "call { i32, i32 } @fp8lab_multiply_add(",
        text,
    )
    text = re.sub(r"(@llvm\.nvvm\.[\w.]*)\.f32\(", r"\1.f(", text)  # as newer releases of LLVM write it
    for i, unit in enumerate(UNITS):
        for name, kind in (("approx.f", 2 * i), ("approx.ftz.f", 2 * i + 1)):
            text = text.replace(f"@llvm.nvvm.{unit}.{name}(", f"@fp8lab_unit(i32 {kind}, ")
    for name, host in (
        ("fma.rn", "llvm.fma.f32"),
        ("fma.rm", "fp8lab_fma_down"),
        ("add.rz", "fp8lab_add_cut"),
        ("fabs", "fp8lab_magnitude"),
        ("saturate", "fp8lab_saturate"),
        ("trunc", "llvm.trunc.f32"),
        ("round", "llvm.roundeven.f32"),
        ("sqrt.rn", "llvm.sqrt.f32"),
    ):
        text = text.replace(f"@llvm.nvvm.{name}.f(", f"@{host}(").replace(f"@llvm.nvvm.{name}.ftz.f(", f"@{host}(")
    text = re.sub(r"@llvm\.nvvm\.f2i\.rn(\.ftz)?\(", "@fp8lab_nearest_integer(", text)
    text = re.sub(
        r"call float @llvm\.nvvm\.(mul|add)\.rn(?:\.ftz)?\.f\(float ([^,]*), float ([^)]*)\)", r"f\1 float \2, \3", text
    )
    text = re.sub(r"call float @llvm\.nvvm\.rcp\.rn(?:\.ftz)?\.f\(float ([^)]*)\)", r"fdiv float 1.0, \1", text)
    return re.sub(r" #\d+|, !\w+(\.\w+)* !\d+|alwaysinline", "", text)


class Libdevice:
    def __init__(self, flushes, names, changed=None):
        """The functions called ``names`` (``__nv_expf``, ...); ``changed`` makes another text of theirs."""
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        text = str(llvm.parse_bitcode(bitcode().read_bytes()))
        defined = definitions(text)
        parts = [PRELUDE] + re.findall(r"^(?:%[\w.]+ = type|@__cudart_i2opi_f =) .*$", text, re.M)
        for name in names:
            body = for_the_host(defined[name], flushes).replace(") {", ") noinline {", 1)
            parts += [changed(body) if changed else body, LOOP.replace("NAME", name)]
        module = llvm.parse_assembly("\n".join(parts).replace("addrspace(1)", ""))
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.control = DEFAULT | (FLUSHES if flushes else 0)

    def _set(self, name, kind, value):
        kind.from_address(self.engine.get_global_value_address(f"fp8lab_{name}")).value = value

    def run(self, name, x, unit):
        """The function of each element; ``unit(name, x, ftz)`` computes what a special function unit does."""
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(
            self.engine.get_function_address(f"run_{name}")
        )
        out = np.empty_like(x)
        arguments, answers = (np.zeros((x.size, SLOTS), np.float32) for _ in range(2))
        kinds = np.full((x.size, SLOTS), -1, np.int32)
        for known in range(SLOTS + 1):
            for field, array in (("arguments", arguments), ("answers", answers), ("kinds", kinds)):
                self._set(field, ctypes.c_void_p, array.ctypes.data)
            self._set("known", ctypes.c_int64, known)
            kinds[:] = -1
            run(x.ctypes.data, out.ctypes.data, x.size, self.control)
            if known == SLOTS or (kinds[:, known] < 0).all():
                return out
            for kind in np.unique(kinds[:, known][kinds[:, known] >= 0]):
                asks = kinds[:, known] == kind
                answers[asks, known] = unit(
                    UNITS[kind // 2], np.ascontiguousarray(arguments[asks, known]), bool(kind % 2)
                )
        raise AssertionError("a function asks more often")
