package local

import (
	"io/fs"
	"syscall"
)

func identifySys(st fs.FileInfo, id *fileID) {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		id.CTime = sys.Ctim.Nano()
		id.Inode = sys.Ino
		id.Device = uint64(sys.Dev)
	}
}

func linkCount(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 1
}
