//! Loaded objects and their symbols, read from memory.
//!
//! The library replaces `dlsym`, so it cannot use it: everything it looks up itself, it finds here, by walking the list of
//! loaded objects and their ELF symbol tables. Nothing is allocated and no lock but the loader's own is taken.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const HIDDEN_VERSION: u16 = 0x8000;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// One loaded object: the program or a shared library.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// What the loader calls it (a path, or empty for the program).
    pub(crate) name: *const c_char,
    base: usize,
    start: usize,
    end: usize,
    strings: usize,
    symbols: usize,
    versions: usize,
    gnu_hash: usize,
    sysv_hash: usize,
    soname: usize,
}

impl Object {
    /// Whether an address lies in this object.
    pub(crate) fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The range of addresses this object fills.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// The name the object gives itself, which survives a copy under another file name.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        if self.strings == 0 || self.soname == usize::MAX {
            return None;
        }
        // SAFETY: DT_SONAME is an offset into the object's own string table, which stays mapped while the object is loaded.
        Some(unsafe { CStr::from_ptr((self.strings + self.soname) as *const c_char) })
    }

    /// The address of a symbol this object defines; of several versions the default one.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        if self.symbols == 0 || self.strings == 0 {
            return None;
        }
        let mut best = None;
        let mut consider = |index: usize| {
            let Some(address) = self.defined(index, name) else { return false };
            let hidden = self.versions != 0
                // SAFETY: DT_VERSYM has one entry for each symbol.
                && unsafe { *((self.versions + 2 * index) as *const u16) } & HIDDEN_VERSION != 0;
            if best.is_none() || !hidden {
                best = Some(address);
            }
            !hidden
        };
        if self.gnu_hash != 0 {
            // SAFETY: the table belongs to a loaded object and is well formed, or the loader would have refused it.
            unsafe { self.gnu_candidates(name, &mut consider) };
        } else if self.sysv_hash != 0 {
            // SAFETY: as above.
            unsafe { self.sysv_candidates(name, &mut consider) };
        }
        best
    }

    /// The name of the function that starts at `address`, for pointers whose name nobody told us.
    pub(crate) fn name_of(&self, address: usize) -> Option<&CStr> {
        let count = self.symbol_count();
        (0..count).find_map(|index| {
            // SAFETY: index is below the number of symbols.
            let sym = unsafe { &*((self.symbols + index * size_of::<Sym>()) as *const Sym) };
            let here = sym.section != 0 && self.base.wrapping_add(sym.value) == address;
            // SAFETY: a symbol's name is an offset into the string table.
            here.then(|| unsafe { CStr::from_ptr((self.strings + sym.name as usize) as *const c_char) })
        })
    }

    fn defined(&self, index: usize, name: &CStr) -> Option<usize> {
        // SAFETY: the index came from this object's hash table, so it is one of its symbols; names are in its string table.
        let (sym, own) = unsafe {
            let sym = &*((self.symbols + index * size_of::<Sym>()) as *const Sym);
            (sym, CStr::from_ptr((self.strings + sym.name as usize) as *const c_char))
        };
        let is_code = matches!(sym.info & 0xf, 0..=2);
        (sym.section != 0 && sym.value != 0 && is_code && own == name).then(|| self.base.wrapping_add(sym.value))
    }

    /// Calls `consider` with the index of every symbol in the name's chain until it says enough.
    unsafe fn gnu_candidates(&self, name: &CStr, consider: &mut dyn FnMut(usize) -> bool) {
        let hash = name.to_bytes().iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
        let word = |i: usize| {
            // SAFETY: the caller vouches for the table; offsets follow its header.
            unsafe { *((self.gnu_hash + 4 * i) as *const u32) }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        if buckets == 0 {
            return;
        }
        let bucket_at = 4 + 2 * bloom as usize;
        let chain_at = bucket_at + buckets as usize;
        let mut index = word(bucket_at + (hash % buckets) as usize);
        if index < first {
            return;
        }
        loop {
            let entry = word(chain_at + (index - first) as usize);
            if entry | 1 == hash | 1 && consider(index as usize) {
                return;
            }
            if entry & 1 == 1 {
                return;
            }
            index += 1;
        }
    }

    unsafe fn sysv_candidates(&self, name: &CStr, consider: &mut dyn FnMut(usize) -> bool) {
        let hash = name.to_bytes().iter().fold(0u32, |h, &b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let high = h & 0xf000_0000;
            (h ^ (high >> 24)) & !high
        });
        let word = |i: usize| {
            // SAFETY: the caller vouches for the table.
            unsafe { *((self.sysv_hash + 4 * i) as *const u32) }
        };
        let buckets = word(0);
        if buckets == 0 {
            return;
        }
        let mut index = word(2 + (hash % buckets) as usize);
        while index != 0 {
            if consider(index as usize) {
                return;
            }
            index = word(2 + buckets as usize + index as usize);
        }
    }

    fn symbol_count(&self) -> usize {
        if self.symbols == 0 || self.strings == 0 {
            return 0;
        }
        if self.sysv_hash != 0 {
            // SAFETY: the second word of DT_HASH is the number of symbols.
            return unsafe { *((self.sysv_hash + 4) as *const u32) as usize };
        }
        if self.gnu_hash == 0 {
            return 0;
        }
        let word = |i: usize| {
            // SAFETY: offsets follow the header of DT_GNU_HASH.
            unsafe { *((self.gnu_hash + 4 * i) as *const u32) as usize }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        let bucket_at = 4 + 2 * bloom;
        let chain_at = bucket_at + buckets;
        let Some(mut last) = (0..buckets).map(|b| word(bucket_at + b)).max().filter(|&i| i >= first) else {
            return first;
        };
        while word(chain_at + last - first) & 1 == 0 {
            last += 1;
        }
        last + 1
    }

    /// Reads what is needed of one entry of the loader's list.
    unsafe fn read(info: &libc::dl_phdr_info) -> Self {
        let base = info.dlpi_addr as usize;
        let mut object = Object {
            name: info.dlpi_name,
            base,
            start: usize::MAX,
            end: 0,
            strings: 0,
            symbols: 0,
            versions: 0,
            gnu_hash: 0,
            sysv_hash: 0,
            soname: usize::MAX,
        };
        let mut dynamic = 0usize;
        for i in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: dlpi_phdr points at dlpi_phnum program headers.
            let header = unsafe { &*info.dlpi_phdr.add(i) };
            let at = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                PT_LOAD => {
                    object.start = object.start.min(at);
                    object.end = object.end.max(at.wrapping_add(header.p_memsz as usize));
                }
                PT_DYNAMIC => dynamic = at,
                _ => {}
            }
        }
        while dynamic != 0 {
            // SAFETY: the dynamic section ends with a null tag.
            let entry = unsafe { &*(dynamic as *const Dyn) };
            // glibc relocates these in place, except in objects it did not load (the vdso): those hold offsets.
            let address = if entry.value < base { base.wrapping_add(entry.value) } else { entry.value };
            match entry.tag {
                0 => break,
                DT_STRTAB => object.strings = address,
                DT_SYMTAB => object.symbols = address,
                DT_HASH => object.sysv_hash = address,
                DT_GNU_HASH => object.gnu_hash = address,
                DT_VERSYM => object.versions = address,
                DT_SONAME => object.soname = entry.value,
                _ => {}
            }
            dynamic += size_of::<Dyn>();
        }
        object
    }
}

/// The first loaded object, in load order, that `wanted` says yes to.
pub(crate) fn first(wanted: &mut dyn FnMut(&Object) -> bool) -> Option<Object> {
    struct Search<'a> {
        wanted: &'a mut dyn FnMut(&Object) -> bool,
        found: Option<Object>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader hands a valid entry, and `search` is the value given to dl_iterate_phdr below.
        let (object, search) = unsafe { (Object::read(&*info), &mut *search.cast::<Search<'_>>()) };
        if (search.wanted)(&object) {
            search.found = Some(object);
            return 1;
        }
        0
    }
    let mut search = Search { wanted, found: None };
    // SAFETY: `visit` matches the callback's type and `search` lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// Where `name` is defined by the first object after the one that holds `after`, and before the one that holds `until`, if any.
pub(crate) fn next_after(after: usize, until: Option<usize>, name: &CStr) -> Option<usize> {
    let (mut passed, mut over) = (false, false);
    let mut at = None;
    first(&mut |object| {
        if !passed {
            passed = object.holds(after);
            return false;
        }
        over |= until.is_some_and(|until| object.holds(until));
        at = if over { None } else { object.find(name) };
        over || at.is_some()
    });
    at
}

/// Whether the object that holds `one` was loaded before the one that holds `other`.
pub(crate) fn in_order(one: usize, other: usize) -> bool {
    first(&mut |object| object.holds(one) || object.holds(other)).is_some_and(|object| object.holds(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_libc_is_found_where_the_loader_has_it() {
        let own = a_function_of_libc_is_found_where_the_loader_has_it as *const () as usize;
        let at = next_after(own, None, c"getpid").expect("libc is loaded");
        let object = first(&mut |o| o.holds(at)).expect("somebody holds it");
        assert!(object.soname().is_some_and(|n| n.to_bytes().starts_with(b"libc.so")));
        assert_eq!(at, libc::getpid as *const () as usize);
        assert_eq!(object.name_of(at).map(|n| n.to_bytes().ends_with(b"getpid")), Some(true));
    }

    #[test]
    fn the_program_holds_its_own_functions_and_defines_no_nonsense() {
        let own = the_program_holds_its_own_functions_and_defines_no_nonsense as *const () as usize;
        let program = first(&mut |o| o.holds(own)).expect("the test program is loaded");
        assert!(program.find(c"divvy_no_such_symbol").is_none());
        assert!(next_after(own, None, c"divvy_no_such_symbol").is_none());
        assert!(next_after(own, Some(libc::getpid as *const () as usize), c"getpid").is_none());
        assert!(in_order(own, libc::getpid as *const () as usize));
    }
}
