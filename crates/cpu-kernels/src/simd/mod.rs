//! What kernels ask of an instruction set.
//!
//! Every operation rounds once, as IEEE 754 says, so that kernels written over [`Simd`] give the same bits whatever the
//! width: lanes hold different outputs, or partial sums that are combined in an order that is fixed for 16 lanes.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;

use crate::Isa;

/// Lanes of a canonical reduction: partial sums, whatever the width of a vector.
pub(crate) const SUM_LANES: usize = 16;

/// Vectors of `LANES` floats.
///
/// # Safety
/// All functions: the CPU has the instructions, and pointers are valid for as many elements as are read or written. No
/// alignment is asked for. They must be inlined into a function that enables the instructions, hence `inline(always)`.
pub(crate) trait Simd: Copy + 'static {
    /// `LANES` floats.
    type F: Copy;
    /// `LANES` 32-bit integers.
    type I: Copy;
    /// The instructions.
    const ISA: Isa;
    /// Floats in a vector: 4, 8 or 16.
    const LANES: usize = Self::ISA.lanes();
    /// Rows of the largest register tile.
    const TILE_ROWS: usize = Self::ISA.tile_rows();
    /// Vectors of a row in that tile.
    const TILE_VECS: usize;
    /// Rows up to which weights are multiplied as they are unpacked, without a buffer.
    const FUSED_ROWS: usize = Self::ISA.fused_rows(true);

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn store(to: *mut f32, x: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// To the nearest integer, halves to the even one.
    unsafe fn round(x: Self::F) -> Self::F;
    /// `2^n` of integral `n` in `-127..=127`; `-127` gives 0.
    unsafe fn pow2(n: Self::F) -> Self::F;
    /// `a` in the lanes where `x >= bound`, else 0.
    unsafe fn where_ge(x: Self::F, bound: Self::F, a: Self::F) -> Self::F;

    /// `LANES` words.
    unsafe fn load_words(from: *const u32) -> Self::I;
    /// `LANES` bytes, widened.
    unsafe fn load_bytes(from: *const u8) -> Self::I;
    /// Shifts right by `by < 32` bits, zeros coming in.
    unsafe fn shift_right(x: Self::I, by: u32) -> Self::I;
    /// Shifts left by `by < 32` bits.
    unsafe fn shift_left(x: Self::I, by: u32) -> Self::I;
    unsafe fn and(x: Self::I, mask: u32) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// To floats; exact below 2²⁴.
    unsafe fn to_float(x: Self::I) -> Self::F;
    /// The lowest nibble of each word, as a float.
    #[inline(always)]
    unsafe fn nibble(x: Self::I) -> Self::F {
        // SAFETY: as the trait asks.
        unsafe { Self::to_float(Self::and(x, 15)) }
    }
    /// `LANES` values of IEEE half precision.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    /// `LANES` values of bfloat16.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// The sum of 16 floats: halves are added until one is left, `x[i] + x[i + 8]` first.
    unsafe fn sum16(from: *const f32) -> f32;
    /// The largest lane.
    unsafe fn max_lane(x: Self::F) -> f32;
}

/// Has a cache line fetched; any address will do.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it never faults, and every such CPU has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Has a cache line fetched to the second level, for what is needed only after more than the first can hold.
#[inline(always)]
pub(crate) fn prefetch_far(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it never faults, and every such CPU has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Defines a function that runs a kernel, generic over [`Simd`], with the instructions of an [`Isa`](crate::Isa).
///
/// The kernel is an `#[inline(always)] unsafe fn kernel<S: Simd>(…)` in scope. [`Isa::Portable`] has no vectors: it
/// must not get here.
macro_rules! for_isa {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $kernel:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// The machine has the instructions; the rest as the kernel says.
        $vis unsafe fn $name(isa: $crate::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: promised by the caller.
                unsafe { $kernel::<$crate::simd::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: promised by the caller.
                unsafe { $kernel::<$crate::simd::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon($($arg: $ty),*) {
                // SAFETY: promised by the caller.
                unsafe { $kernel::<$crate::simd::Neon>($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the instructions are there, and the rest is promised by the caller.
                $crate::Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: as above.
                $crate::Isa::Neon => unsafe { neon($($arg),*) },
                other => unreachable!("{other} has no vectors here"),
            }
        }
    };
}
pub(crate) use for_isa;

#[cfg(test)]
mod tests;
