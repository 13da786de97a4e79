//! The shape of the source: every file is in use and short, its functions too; folders are small, files stand in no circles, rooms use
//! those below them, and a type's name means one type.

mod circles;
mod floors;
mod folders;
mod functions;
mod names;
mod reach;
mod size;
