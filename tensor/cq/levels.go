package cq

// standardLevels are what Gaussian gives for 4, 8 and 16 levels, kept since every
// archive needs them; TestStandardCodebooks fits them anew.
var standardLevels = map[int][]float64{
	4: {-0x1.81b52e4028034p+00, -0x1.ce467275b97c2p-02, 0x1.cfd177c54d348p-02, 0x1.828af1c85664p+00},
	8: {-0x1.121468f3c6b81p+01, -0x1.556e7125deacap+00, -0x1.7f2e0f9d592abp-01, -0x1.e6e4509e1aa2cp-03,
		0x1.000bb25e4dfa5p-02, 0x1.82dc469b936a5p-01, 0x1.568607ac227c5p+00, 0x1.12e5beccc8fdap+01},
	16: {-0x1.5ae0f408928fbp+01, -0x1.05b0b8a516d54p+01, -0x1.9841ff0758fc8p+00, -0x1.3bbbebadac679p+00,
		-0x1.d82c6dd21f59ep-01, -0x1.47717151708b5p-01, -0x1.7d9b9e4b565fap-02, -0x1.d4ca474b8559bp-04,
		0x1.2683e9154fce1p-03, 0x1.9daf49368793ap-02, 0x1.586b43e57d29dp-01, 0x1.ec3d50cbc3b33p-01,
		0x1.4688db93b85f1p+00, 0x1.a3164906b4291p+00, 0x1.0ace7bbde2442p+01, 0x1.5ed98d06f2a4ap+01},
}
