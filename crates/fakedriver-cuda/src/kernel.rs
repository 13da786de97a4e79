//! Modules, libraries, functions, and how long a kernel runs.
//!
//! Any image is accepted. From PTX text the names of its entries are read, so that a wrong name is refused as on the card;
//! other images have whatever kernel is asked for. What a kernel does is in its name:
//!
//! - `spin_us_200` anywhere in the name (also `ns`, `ms`): runs so long;
//! - `spin_arg_us` (also `ns`, `ms`): runs as long as its first argument, 32 bits, says;
//! - otherwise as long as the spec's `kernel`, once per wave of blocks that fills the card.

use std::collections::HashMap;
use std::ffi::c_void;

use crate::abi::Error;
use crate::context::ContextId;
use crate::handles::Handles;

mod ptx;

use ptx::Ptx;

pub(crate) struct Module {
    /// The context it is loaded in; 0 for a library, which is in all.
    pub(crate) context: ContextId,
    functions: HashMap<(String, ContextId), u64>,
    /// Variables whose memory somebody asked for.
    pub(crate) globals: HashMap<(String, ContextId), (u64, u64)>,
    /// What the image tells, if it is PTX.
    ptx: Option<Ptx>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) module: u64,
    pub(crate) attributes: HashMap<u32, i32>,
    pub(crate) loaded: bool,
    /// The block and shared memory of launches of before CUDA 4.
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    time: Time,
}

#[derive(Clone, Copy)]
enum Time {
    Fixed(u64),
    Argument(u64),
    ByDefault,
}

/// All modules and functions of the process.
#[derive(Default)]
pub(crate) struct Kernels {
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    /// What linkers have been given.
    pub(crate) links: Handles<Vec<u8>>,
}

impl Module {
    /// The names of its kernels, where the image tells.
    pub(crate) fn entries(&self) -> Option<impl Iterator<Item = &str>> {
        self.ptx.as_ref().map(|p| p.entries.iter().map(|(name, _)| name.as_str()))
    }

    /// The size of a variable; an image that does not tell has every one, of a page.
    pub(crate) fn variable(&self, name: &str) -> Option<u64> {
        const PAGE: u64 = 4096;
        match &self.ptx {
            Some(ptx) => ptx.variables.iter().find(|(n, _)| n == name).map(|(_, size)| *size),
            None => (!name.is_empty()).then_some(PAGE),
        }
    }
}

impl Kernels {
    /// The sizes of a kernel's parameters; none are known of images that do not tell.
    pub(crate) fn parameters(&self, function: u64) -> Result<Vec<usize>, Error> {
        let function = self.get(function)?;
        let ptx = self.modules.get(&function.module).and_then(|m| m.ptx.as_ref());
        let entry = ptx.and_then(|p| p.entries.iter().find(|(name, _)| *name == function.name));
        Ok(entry.map_or_else(Vec::new, |(_, sizes)| sizes.clone()))
    }

    pub(crate) fn add_module(&mut self, id: u64, context: ContextId, image: *const c_void) {
        let module = Module { context, functions: HashMap::new(), globals: HashMap::new(), ptx: ptx::read(image) };
        self.modules.insert(id, module);
    }

    pub(crate) fn remove_module(&mut self, id: u64) -> Result<Module, Error> {
        let module = self.modules.remove(&id).ok_or(Error::INVALID_HANDLE)?;
        module.functions.values().for_each(|f| drop(self.functions.remove(f)));
        Ok(module)
    }

    pub(crate) fn drop_context(&mut self, context: ContextId) {
        let gone: Vec<u64> = self.modules.iter().filter(|(_, m)| m.context == context).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| drop(self.remove_module(id)));
    }

    /// A function of a module; made when first asked for, with the handle given.
    pub(crate) fn function(&mut self, module: u64, name: &str, context: ContextId, handle: u64) -> Result<u64, Error> {
        let owner = self.modules.get_mut(&module).ok_or(Error::INVALID_HANDLE)?;
        if let Some(&known) = owner.functions.get(&(name.to_owned(), context)) {
            return Ok(known);
        }
        if name.is_empty() || owner.entries().is_some_and(|mut e| !e.any(|n| n == name)) {
            return Err(Error::NOT_FOUND);
        }
        owner.functions.insert((name.to_owned(), context), handle);
        let function = Function {
            name: name.to_owned(),
            module,
            attributes: HashMap::new(),
            loaded: false,
            block: [1; 3],
            shared: 0,
            time: Time::of(name),
        };
        self.functions.insert(handle, function);
        Ok(handle)
    }

    pub(crate) fn get(&self, id: u64) -> Result<&Function, Error> {
        self.functions.get(&id).ok_or(Error::INVALID_HANDLE)
    }
}

impl Time {
    fn of(name: &str) -> Self {
        let scales = [("ns", 1), ("us", 1_000), ("ms", 1_000_000)];
        for (unit, scale) in scales {
            if let Some(at) = name.find(&format!("spin_{unit}_")) {
                let digits: String = name[at + 8..].chars().take_while(char::is_ascii_digit).collect();
                if let Ok(count) = digits.parse::<u64>() {
                    return Self::Fixed(count * scale);
                }
            }
            if name.contains(&format!("spin_arg_{unit}")) {
                return Self::Argument(scale);
            }
        }
        Self::ByDefault
    }
}

impl Function {
    /// How long a launch of it runs, in nanoseconds.
    pub(crate) fn time(&self, params: *mut *mut c_void, blocks: u64, sms: u32, by_default: u64) -> u64 {
        match self.time {
            Time::Fixed(time) => time,
            Time::Argument(scale) => {
                if params.is_null() {
                    return 0;
                }
                // SAFETY: a kernel of this name has one argument of 32 bits; the caller passes a pointer to it.
                let first = unsafe { *params };
                if first.is_null() { 0 } else { u64::from(unsafe_read(first)) * scale }
            }
            // Sixteen blocks on a multiprocessor make a wave.
            Time::ByDefault => by_default * blocks.div_ceil(16 * u64::from(sms.max(1))).max(1),
        }
    }
}

fn unsafe_read(at: *const c_void) -> u32 {
    // SAFETY: not null, and an argument of 32 bits by the kernel's name.
    unsafe { at.cast::<u32>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(name: &str, argument: Option<u32>, blocks: u64) -> u64 {
        let (mut kernels, image) = (Kernels::default(), [1u8; 8]);
        kernels.add_module(1, 7, image.as_ptr().cast());
        kernels.function(1, name, 7, 2).unwrap();
        let mut value = argument.unwrap_or(0);
        let mut params = [(&raw mut value).cast::<c_void>()];
        let params = if argument.is_some() { params.as_mut_ptr() } else { std::ptr::null_mut() };
        kernels.get(2).unwrap().time(params, blocks, 100, 5_000)
    }

    #[test]
    fn the_name_of_a_kernel_tells_how_long_it_runs() {
        assert_eq!(time("spin_us_200", None, 1), 200_000);
        assert_eq!(time("_Z9spin_ms_5v", None, 9999), 5_000_000);
        assert_eq!(time("spin_arg_us", Some(70), 1), 70_000);
        assert_eq!(time("spin_arg_us", None, 1), 0, "no argument, no time");
        assert_eq!(
            (time("gemm", None, 1), time("gemm", None, 1601)),
            (5_000, 10_000),
            "by waves of 16 blocks on 100 multiprocessors"
        );
    }
}
