// Package resident keeps pages of files from counting as the process's memory that it
// no longer needs.
//
// Systems count a page of a mapped file, the program's own among them, as long as it is
// in the page table, and put the 15 around it there too. Starting a program, reading a
// header and making a tokenizer touch megabytes of code, tables and files that running a
// model never comes back to.
package resident
